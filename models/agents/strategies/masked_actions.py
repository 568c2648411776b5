"""Choice of one of the actions that are admitted at a step, under a way of reasoning chosen for it.

After PoAct (arXiv 2501.07054):

    way      the policy names its way of reasoning for this step                     the most likely of their names
    mask     of the actions that the environment lists, those that the way admits
    turn     drawn from the policy among these alone: p(a) = pi(a | history, way) / sum over the admitted

Probabilities are those of whole turns, to the power of 1 / temperature; greedy takes the likeliest. Turns are not
sampled token by token, so only listed actions can occur; if no action has room, the first is cut, which ends an
episode. In the paper actions are code over tools, a retriever and a judge prune the tools before each step, and GPT-4o
chooses the way.

With a `scorer`, the log-prob of an action is added to the logarithm of its value, so that an action must be both likely
in words and possible at this state (SayCan, arXiv 2204.01691; paper 83):

    p(a) ~ pi(a | history, way) * value(history, a) ^ value_weight

In that paper the value is that of a robot's skill, the probability that it succeeds from the present state, and the
likeliest skill is taken until the skill `done`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from pydantic import Field, NonNegativeFloat

from models.agents.strategy import CountedPolicy, SourcePaper, Strategy
from models.agents.turn_scorer import NO_SCORER, Scorer, log_value
from models.base.bounds import Count
from models.base.errors import UserError
from models.engines.engine import CompletionRequest, Generated, TokenSampling
from models.engines.random_points import TOKENS, points_of
from models.method.registry import part


@dataclass(frozen=True, kw_only=True)
class ReasoningMode:
    """A way of reasoning, and the actions that it admits."""

    name: str
    """Name by which the policy chooses it."""
    prompt: str = ""
    """Instruction to the policy before it acts; empty: none."""
    only: str = ""
    """Pattern that must match a whole action to admit it; empty: all. If it admits none, all are admitted."""

    def __post_init__(self) -> None:
        try:
            re.compile(self.only)
        except re.error as error:
            raise ValueError(f"{self.name}: {self.only!r} is not a pattern ({error})") from None

    def admits(self, actions: Sequence[str]) -> list[str]:
        """Return the admitted actions; all of `actions` if the pattern admits none."""
        matching = [action for action in actions if not self.only or re.fullmatch(self.only, action)]
        return matching or list(actions)


@part("masked_actions")
class MaskedActions(Strategy):
    """One of the listed actions that a way of reasoning admits."""

    source = SourcePaper(
        321, "PoAct: Policy and Action Dual-Control Agent for Generalized Applications (arXiv 2501.07054)"
    )
    ways: Annotated[tuple[ReasoningMode, ...], Field(min_length=1, max_length=16)] = (ReasoningMode(name="act"),)
    """Ways of reasoning, each with `name`, `prompt`, and `only`: the pattern of the actions that it admits."""
    choose: str = "Which way suits the next step?"
    """Question to the policy if there are several ways; it answers with a name."""
    actions: tuple[str, ...] = ()
    """Actions if the environment lists none."""
    most_actions: Annotated[int, Field(ge=1, le=4096)] = 256
    """Maximum number of actions of a step, above which it is refused: each is a call."""
    extra_tokens: Count = 256
    """Tokens in addition to prompt and episode that the engine needs room for: prompts of the ways."""
    scorer: Scorer = NO_SCORER
    """Scorer whose value of an action is multiplied with its probability; none: the probability alone."""
    value_weight: NonNegativeFloat = 1.0
    """Exponent of the value; 0: the probability alone."""

    def __post_init__(self) -> None:
        if self.scorer.name == "likelihood":
            raise UserError("strategy.scorer: the likelihood of an action is already in its probability; name a model")

    @property
    def most_calls(self) -> int:
        """One call per way and per action."""
        return len(self.ways) + self.most_actions

    def turns(
        self, policy: CountedPolicy, requests: Sequence[CompletionRequest], drawing: TokenSampling
    ) -> list[Generated]:
        """Return the turn of each request, [requests]."""
        ways = self._choose(policy, requests)
        histories = [
            policy.extended(request.prompt, (), way.prompt) if way.prompt else tuple(request.prompt)
            for request, way in zip(requests, ways, strict=True)
        ]
        admitted = [self._admitted(request, way) for request, way in zip(requests, ways, strict=True)]
        turns = [policy.ids(actions) for actions in admitted]
        rows = self._with_values(policy, requests, turns, _scores(policy, histories, turns))
        points = points_of([replace(request, max_tokens=1) for request in requests], 1, TOKENS)[:, 0]
        chosen = [
            chosen_action(_with_room(row, given, request), drawing.temperature, float(point))
            for row, given, request, point in zip(rows, turns, requests, points, strict=True)
        ]
        whole = [given[place] for given, place in zip(turns, chosen, strict=True)]
        return [
            Generated(ids[: request.max_tokens], None, len(ids) <= request.max_tokens)
            for ids, request in zip(whole, requests, strict=True)
        ]

    def _with_values(
        self,
        policy: CountedPolicy,
        requests: Sequence[CompletionRequest],
        turns: Sequence[Sequence[tuple[int, ...]]],
        rows: list[list[float]],
    ) -> list[list[float]]:
        """Return the log-prob plus the weighted log value of each action, [requests][actions]."""
        if self.scorer.name == "none" or not self.value_weight:
            return rows
        values = policy.value_rows(self.scorer, requests, turns)
        return [
            [
                log_prob + self.value_weight * log_value(value, self.scorer.scale)
                for log_prob, value in zip(row, own, strict=True)
            ]
            for row, own in zip(rows, values, strict=True)
        ]

    def _choose(self, policy: CountedPolicy, requests: Sequence[CompletionRequest]) -> list[ReasoningMode]:
        if len(self.ways) == 1:
            return list(self.ways) * len(requests)
        questions = [policy.extended(request.prompt, (), self.choose) for request in requests]
        names = policy.ids([way.name for way in self.ways])
        rows = _scores(policy, questions, [names] * len(requests))
        return [self.ways[row.index(max(row))] for row in rows]

    def _admitted(self, request: CompletionRequest, way: ReasoningMode) -> list[str]:
        return way.admits(listed_actions(request, self.actions, self.most_actions, self.name))


def listed_actions(request: CompletionRequest, given: Sequence[str], most: int, strategy: str) -> tuple[str, ...]:
    """Return the different actions of a step, in their order.

    Args:
        request: request of the turn, with the actions that the environment lists.
        given: actions if the environment lists none.
        most: largest number of actions.
        strategy: name of the strategy, for the error.

    Raises:
        UserError: the list of actions is empty or too long.
    """
    actions = tuple(dict.fromkeys(request.actions or given))
    if not actions:
        raise UserError(f"strategy {strategy}: the environment lists no actions; name them as strategy.actions=[...]")
    if len(actions) > most:
        raise UserError(
            f"strategy {strategy}: the environment lists {len(actions)} actions, and strategy.most_actions is {most}"
        )
    return actions


def chosen_action(log_probs: torch.Tensor, temperature: float, point: float) -> int:
    """Draw the index of an action from the log-probs of whole actions.

    Args:
        log_probs: log-prob of each admitted action, [actions], nats; minus infinity for one that cannot be taken.
        temperature: zero: the likeliest, the first of several.
        point: random point in [0, 1).
    """
    if not temperature or bool((log_probs == -torch.inf).all()):
        return int(log_probs.argmax())
    total = torch.softmax(log_probs / temperature, 0).cumsum(0)
    return min(int((total <= point * total[-1]).sum()), int((log_probs > -torch.inf).nonzero().max()))


def _with_room(row: Sequence[float], turns: Sequence[tuple[int, ...]], request: CompletionRequest) -> torch.Tensor:
    """Return the log-probs of actions, [actions], minus infinity for a turn that is too long."""
    fits = [len(ids) <= request.max_tokens for ids in turns]
    values = [value if fit else float("-inf") for value, fit in zip(row, fits, strict=True)]
    return torch.tensor(values, dtype=torch.float64)


def _scores(
    policy: CountedPolicy, histories: Sequence[tuple[int, ...]], given: Sequence[Sequence[tuple[int, ...]]]
) -> list[list[float]]:
    """Return the log-probs of several texts after each history, [histories][texts], in one call."""
    prompts = [ids for ids, texts in zip(histories, given, strict=True) for _ in texts]
    flat = iter(policy.score(prompts, [text for texts in given for text in texts]))
    return [[next(flat) for _ in texts] for texts in given]
