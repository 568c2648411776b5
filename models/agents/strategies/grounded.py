"""One of the listed actions, written token by token by the policy and by their grounded scores together (paper 55).

    p(token | text) proportional to p_policy(token | text) * [G(text + token) / G(text)]^weight
    G(text) = sum of the scores g(a) of the listed actions a that begin with `text`

Grounded Decoding (arXiv 2303.00855) multiplies the policy's tokens by the likelihood of the beginning under models that
know what is possible and useful in the environment. Here an environment lists the actions that are possible, and a
scorer, such as a critic, states how useful each is. G / G is the next token's probability if an action was drawn in
proportion to g, so the result is a product of two distributions at every token. With uniform scores the policy only
stays within the actions. With actions of a single token and weight 1 it is p(a) g(a), normalised.

In contrast to `masked_actions`, which normalises over whole actions, the policy is read once a token and not once an
action, so there may be many actions. In the paper the scores come from affordances, safety and preferences of robots.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from models.agents.strategies.masked_actions import listed_actions
from models.agents.strategy import CountedPolicy, SourcePaper, Strategy
from models.agents.turn_scorer import NO_SCORER, Scorer, log_value
from models.engines.engine import CompletionRequest, Generated, TokenSampling
from models.engines.voice import AddedTerm, JointDecoding, TermState
from models.method.registry import part

Listed = tuple[tuple[int, ...], tuple[str, ...]]
"""Prompt and listed actions of a request."""


@part("grounded")
class Grounded(Strategy):
    """A listed action, drawn token by token from the policy times the actions' scores."""

    source = SourcePaper(
        55,
        "Grounded Decoding: Guiding Text Generation with Grounded Models for Robot Control (arXiv 2303.00855)",
        "inference-time-search",
    )
    joint = True
    weight: Annotated[float, Field(ge=0, le=100)] = 1.0
    """Exponent of the grounded scores; 0: the policy is only kept within the actions."""
    scorer: Scorer = NO_SCORER
    """Scorer of the listed actions; none: all have the same score."""
    actions: tuple[str, ...] = ()
    """Actions if the environment lists none."""
    most_actions: Annotated[int, Field(ge=1, le=65_536)] = 4096
    """Maximum number of actions of a step, above which it is refused."""

    @property
    def most_calls(self) -> int:
        """One, and one per action if the policy itself scores them."""
        return 1 + self.scorer.calls * self.most_actions

    def turns(
        self, policy: CountedPolicy, requests: Sequence[CompletionRequest], drawing: TokenSampling
    ) -> list[Generated]:
        """Return the turn of each request, [requests].

        Raises:
            UserError: no actions are listed, or more than `most_actions`.
        """
        distinct = {_key(request): request for request in requests}
        ids = [
            policy.ids(listed_actions(request, self.actions, self.most_actions, self.name))
            for request in distinct.values()
        ]
        values = policy.value_rows(self.scorer, list(distinct.values()), ids)
        tries = {
            key: prefix_scores(turns, [log_value(value, self.scorer.scale) for value in row])
            for key, turns, row in zip(distinct, ids, values, strict=True)
        }
        return policy.draft(requests, drawing, JointDecoding(terms=(GroundedTerm(tries, self.weight),)))


PrefixScores = Mapping[tuple[int, ...], Mapping[int, float]]
"""Beginning of an action -> each possible next token and the log of G(beginning + token) / G(beginning)."""


def prefix_scores(turns: Sequence[tuple[int, ...]], scores: Sequence[float]) -> PrefixScores:
    """Sum the scores of actions by their beginnings.

    Args:
        turns: ids of whole actions, each with the token that ends it, [actions].
        scores: log g of each, [actions]; if all are minus infinity, they count as equal.
    """
    largest = max(scores)
    weights = [1.0 if largest == -math.inf else math.exp(score - largest) for score in scores]
    totals: dict[tuple[int, ...], dict[int, float]] = {}
    for turn, weight in zip(turns, weights, strict=True):
        for at, token in enumerate(turn):
            following = totals.setdefault(turn[:at], {})
            following[token] = following.get(token, 0.0) + weight
    return {text: _log_shares(following) for text, following in totals.items()}


def _log_shares(following: Mapping[int, float]) -> dict[int, float]:
    total = sum(following.values())
    if not total:  # a beginning that no action with a score has; it is not reached
        return dict.fromkeys(following, -math.log(len(following)))
    return {token: math.log(weight / total) if weight else -math.inf for token, weight in following.items()}


@dataclass(frozen=True)
class GroundedTerm(AddedTerm):
    """The scores of the listed actions as a term of joint decoding."""

    tries: Mapping[Listed, PrefixScores]
    weight: float

    def begin(self, requests: Sequence[CompletionRequest], group_size: int) -> TermState:
        """See `AddedTerm.begin`."""
        return _PrefixState([self.tries[_key(request)] for request in requests], self.weight)


class _PrefixState(TermState):
    """Beginning of the action in each row."""

    def __init__(self, tries: Sequence[PrefixScores], weight: float) -> None:
        self.tries, self.weight = tries, weight
        self.texts: list[tuple[int, ...]] = [()] * len(tries)

    def added(self, log_probs: Tensor, rows: Tensor, step: int) -> Tensor:
        """See `TermState.added`; zero for rows whose action has ended, which are not read any more."""
        term = torch.zeros_like(log_probs)
        for place, row in enumerate(rows.tolist()):
            following = self.tries[row].get(self.texts[row])
            if following is None:
                continue
            tokens = torch.tensor(list(following), device=term.device)
            shares = torch.tensor(list(following.values()), dtype=term.dtype, device=term.device)
            term[place] = -math.inf
            term[place, tokens] = torch.where(torch.isneginf(shares), shares, self.weight * shares)
        return term

    def read(self, tokens: Tensor, rows: Tensor, step: int) -> None:
        """See `TermState.read`."""
        for row, token in zip(rows.tolist(), tokens.tolist(), strict=True):
            self.texts[row] = (*self.texts[row], token)


def _key(request: CompletionRequest) -> Listed:
    return tuple(request.prompt), request.actions
