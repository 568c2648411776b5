"""The best of several drafts of a turn by a scorer (best-of-N; arXiv 2502.06703; paper 281).

    y_1 .. y_n ~ pi(. | h)        turn = argmax of score(h, y_i), the first of equals

The scorer is a reward model, a process model, a critic, a judge, or the policy's own likelihood, which needs no other
model. A draft that was cut is taken only if all were cut. `vote` is the majority vote over the same drafts and, with a
scorer, the weighted vote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from models.agents.strategy import CountedPolicy, SourcePaper, Strategy, drafts_of
from models.agents.turn_scorer import Scorer, ScorerSettings
from models.base.bounds import Temperature
from models.base.errors import UserError
from models.engines.engine import CompletionRequest, Generated, TokenSampling
from models.method.registry import part


@part("best_of_n")
class BestOfN(Strategy):
    """The draft with the highest value by a scorer."""

    source = SourcePaper(
        281,
        "Can 1B LLM Surpass 405B LLM? Rethinking Compute-Optimal Test-Time Scaling (arXiv 2502.06703)",
        family="inference-time-search",
    )
    drafts: Annotated[int, Field(ge=1, le=1024)] = 8
    """Drafts per turn."""
    temperature: Temperature = 1.0
    """Temperature of the drafts if the turn would be greedy, because greedy drafts are all the same."""
    scorer: Scorer = ScorerSettings()
    """Scorer that chooses among the drafts."""

    def __post_init__(self) -> None:
        if self.scorer.name == "none":
            raise UserError("strategy.scorer: best_of_n needs a scorer; the strategy vote needs none")

    @property
    def most_calls(self) -> int:
        """The number of drafts, and of scores by the policy itself."""
        return self.drafts * (1 + self.scorer.calls)

    def at_budget(self, answers: int) -> BestOfN:
        """Return the strategy with `answers` drafts."""
        return replace(self, drafts=answers)

    def turns(
        self, policy: CountedPolicy, requests: Sequence[CompletionRequest], drawing: TokenSampling
    ) -> list[Generated]:
        """Return the turn of each request, [requests].

        Raises:
            UserError: the scorer's model is not open.
        """
        rows = drafts_of(policy, requests, drawing, self.drafts, self.temperature)
        if self.drafts == 1:
            return [draft for (draft,) in rows]
        values = policy.value_rows(self.scorer, requests, [[draft.tokens for draft in row] for row in rows])
        turns = []
        for row, own in zip(rows, values, strict=True):
            worth = [(draft.finished, value) for draft, value in zip(row, own, strict=True)]
            turns.append(row[worth.index(max(worth))])
        return turns
