"""Several drafts of a turn, and the one that most of them agree with (self-consistency, arXiv 2203.11171).

    turn = first draft that states what most drafts state

Drafts that state no answer, such as calls of a tool, vote with their whole text. Ties go to the draft that came first.
With a `scorer` each draft has a weight (the weighted vote of arXiv 2502.06703; paper 281), and the answer with the
largest sum of weights wins. Drafts that were cut have no vote and are not scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from models.agents.strategy import CountedPolicy, SourcePaper, Strategy, drafts_of
from models.agents.turn_scorer import NO_SCORER, Scorer, weights_of
from models.answers.ballot import winner
from models.base.bounds import Temperature
from models.engines.engine import CompletionRequest, Generated, TokenSampling
from models.method.registry import part


@part("vote")
class Vote(Strategy):
    """The turn that most of several drafts agree with."""

    source = SourcePaper(
        None, "Self-Consistency Improves Chain of Thought Reasoning in Language Models (arXiv 2203.11171)"
    )
    drafts: Annotated[int, Field(ge=1, le=1024)] = 5
    """Drafts per turn."""
    temperature: Temperature = 1.0
    """Temperature of the drafts if the turn would be greedy, because greedy drafts are all the same."""
    scorer: Scorer = NO_SCORER
    """Scorer whose values weight the votes; none: all weights are equal."""

    @property
    def most_calls(self) -> int:
        """The number of drafts, and of scores by the policy itself."""
        return self.drafts * (1 + self.scorer.calls)

    def at_budget(self, answers: int) -> Vote:
        """Return the strategy with `answers` drafts."""
        return replace(self, drafts=answers)

    def turns(
        self, policy: CountedPolicy, requests: Sequence[CompletionRequest], drawing: TokenSampling
    ) -> list[Generated]:
        """Return the turn of each request, [requests]."""
        rows = drafts_of(policy, requests, drawing, self.drafts, self.temperature)
        if self.drafts == 1:
            return [draft for (draft,) in rows]
        texts = iter(policy.texts([draft for row in rows for draft in row]))
        scored = [
            (number, place)
            for number, row in enumerate(rows)
            for place, draft in enumerate(row)
            if draft.finished and self.scorer.name != "none"
        ]
        values = policy.values(
            self.scorer,
            [requests[number].prompt for number, _ in scored],
            [rows[number][place].tokens for number, place in scored],
        )
        of_drafts = dict(zip(scored, values, strict=True))
        turns = []
        for number, row in enumerate(rows):
            own = [of_drafts.get((number, place)) for place in range(len(row))]
            whole = iter(weights_of([value for value in own if value is not None], self.scorer.scale))
            weights = None if self.scorer.name == "none" else [0.0 if v is None else next(whole) for v in own]
            turns.append(row[winner([next(texts) for _ in row], weights)])
        return turns
