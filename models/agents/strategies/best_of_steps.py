"""Choice of the candidate turn with the highest value under a model of step values.

After step-level Q (arXiv 2409.09345; paper 355):

    Q(h, a) = log pi_values(a | h) - log pi_reference(a | h)        turn = candidate of highest Q, first of equals

The log-ratio of a policy fitted to siblings of a search by step-level DPO (recipe step_q) equals Q, up to beta and a
term that depends on the history alone; neither changes which candidate is best. The agent that acts is not changed. The
setting `values` names the model; its reference is the agent, unless it was trained from another. The log-probs are
those of whole turns, at temperature 1. A candidate that was cut is taken only if all were. Candidates with the same
text are scored once; scores of the model of values are not calls of the policy and are not counted.

With `scorer: critic`, the values are those of a critic that was fitted offline to logged episodes, and no log-ratio is
read (Value-Guided Policy Steering, arXiv 2410.13816; paper 248):

    turn = candidate of highest Q(h, a) at temperature 0, else drawn by softmax(Q / steering)

The critic reads only histories and turns, so the same one serves any policy with its tokens, whose weights are never
read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import torch
from pydantic import Field, NonNegativeFloat

from models.agents.frozen_models import engine_of
from models.agents.strategies.masked_actions import chosen_action
from models.agents.strategy import CountedPolicy, SourcePaper, Strategy, drafts_of
from models.agents.turn_scorer import NO_SCORER, Scorer
from models.base.bounds import Temperature
from models.base.errors import UserError
from models.engines.engine import CompletionRequest, Engine, Generated, TokenSampling
from models.engines.random_points import TOKENS, points_of
from models.method.recipe_paths import ContentPath
from models.method.registry import part


@part("best_of_steps")
class BestOfSteps(Strategy):
    """The turn of highest value among several."""

    source = SourcePaper(
        355, "Enhancing Decision-Making for LLM Agents via Step-Level Q-Value Models (arXiv 2409.09345)"
    )
    values: ContentPath = ""
    """Model folder of the policy whose log-ratio is the value of a step."""
    reference: ContentPath = ""
    """Model folder of the model that it was trained from; empty: the policy that is measured."""
    candidates: Annotated[int, Field(ge=1, le=64)] = 5
    """Candidates per turn. The paper uses five."""
    temperature: Temperature = 1.0
    """Temperature of the candidates if the turn would be greedy, because greedy candidates are all the same."""

    scorer: Scorer = NO_SCORER
    """Scorer whose values replace the log-ratio, such as a critic of logged episodes; none: the log-ratio."""
    steering: NonNegativeFloat = 0.0
    """Temperature of the choice among the candidates, in units of the value; 0: the highest."""

    def __post_init__(self) -> None:
        if self.scorer.name != "none" and (self.values or self.reference):
            raise UserError("strategy.scorer: values and reference belong to the log-ratio; leave them out")

    @property
    def most_calls(self) -> int:
        """One draft per candidate and, if the policy is the reference or the scorer, one score."""
        reads_policy = self.scorer.calls if self.scorer.name != "none" else not self.reference
        return self.candidates * (1 + reads_policy)

    def at_budget(self, answers: int) -> BestOfSteps:
        """Return the strategy with `answers` candidates."""
        return replace(self, candidates=answers)

    def turns(
        self, policy: CountedPolicy, requests: Sequence[CompletionRequest], drawing: TokenSampling
    ) -> list[Generated]:
        """Return the turn of each request, [requests].

        Raises:
            UserError: no model of values is named, it has other tokens than the policy, or the scorer is not open.
        """
        if self.scorer.name == "none":
            values_model = _open_model(self.values, "values", policy)
        rows = drafts_of(policy, requests, drawing, self.candidates, self.temperature)
        prompts = [tuple(request.prompt) for request, row in zip(requests, rows, strict=True) for _ in row]
        turns = [turn.tokens for row in rows for turn in row]
        if self.scorer.name == "none":
            worth = self._log_ratios(policy, values_model, prompts, turns)
        else:
            worth = policy.values(self.scorer, prompts, turns)
        flat = iter(worth)
        points = points_of([replace(request, max_tokens=1) for request in requests], 1, TOKENS)[:, 0]
        made = []
        for row, point in zip(rows, points.tolist(), strict=True):
            own = torch.tensor([next(flat) for _ in row], dtype=torch.float64)
            if any(turn.finished for turn in row):
                own[[not turn.finished for turn in row]] = -torch.inf
            made.append(row[chosen_action(own, self.steering, point)])
        return made

    def _log_ratios(
        self,
        policy: CountedPolicy,
        values: Engine,
        prompts: Sequence[tuple[int, ...]],
        turns: Sequence[tuple[int, ...]],
    ) -> list[float]:
        """Return the log-ratio of each turn, [turns]; equal turns after one history are scored once."""
        rows = list(zip(prompts, turns, strict=True))
        distinct = list(dict.fromkeys(rows))
        of_prompts, of_turns = [prompt for prompt, _ in distinct], [ids for _, ids in distinct]
        if self.reference:
            reference = _sums(_open_model(self.reference, "reference", policy), of_prompts, of_turns)
        else:
            reference = policy.score(of_prompts, of_turns)
        scored = zip(distinct, _sums(values, of_prompts, of_turns), reference, strict=True)
        worth = {row: mine - other for row, mine, other in scored}
        return [worth[row] for row in rows]


def _sums(model: Engine, prompts: Sequence[Sequence[int]], turns: Sequence[Sequence[int]]) -> list[float]:
    return [sum(row) for row in model.score(prompts, turns)]


def _open_model(folder_name: str, setting: str, policy: CountedPolicy) -> Engine:
    if not folder_name:
        raise UserError(f"strategy.{setting}: name the model folder of a policy that step_q has trained")
    return engine_of(folder_name, policy)
