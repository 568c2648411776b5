"""Rules of conduct, checked on every turn of an episode (the rule circuits of ShieldAgent, paper 308, 2503.22738).

    reward of a turn = -(weights of the rules that it violates)            `models.agents.play.circuits`

Rules are written by hand in the recipe, while the paper extracts them from documents with a language model. With `most`
the rules are a constraint: in a round in which at most this share of the episodes violates any rule, violations cost
nothing and only the other rewards are used. Otherwise a violation costs its weight (constraint-rectified policy
optimisation, arXiv 2011.05869).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from models.agents.play.circuits import CompiledRule, names_of, violations
from models.base.bounds import LARGEST, Share
from models.base.errors import UserError
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import TokenReward
from models.method.rollout import Rollout
from models.parts.shared.of_turns import turns_of


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A formula that must hold at a turn."""

    when: str = ""
    """Regular expression of the turns that the rule applies to; empty: all."""
    requires: str = ""
    """Formula of propositions with and, or, not and brackets."""
    weight: Annotated[float, Field(ge=0, le=LARGEST)] = 1.0
    """Cost of a violation."""


@part("policy_rules")
class PolicyRules(TokenReward):
    """Cost of the turns that break rules."""

    rules: tuple[Rule, ...] = ()
    """Rules that must all hold."""
    propositions: dict[str, str] = field(default_factory=dict)
    """Name -> regular expression, searched line by line in the policy's and the environment's text before the turn."""
    most: Share | None = None
    """Maximum share of a round's episodes that may violate a rule at no cost; null: every violation costs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"rewards.{self.label}"
        known = {
            name: _compiled(pattern, f"{where}.propositions.{name}") for name, pattern in self.propositions.items()
        }
        circuits = []
        for number, rule in enumerate(self.rules):
            place = f"{where}.rules.{number}"
            try:
                missing = sorted(names_of(rule.requires) - set(known))
            except ValueError as error:
                raise UserError(f"{place}.requires: {error}") from None
            if missing:
                raise UserError(f"{place}.requires: no proposition is called {missing[0]!r}")
            circuits.append(CompiledRule(_compiled(rule.when, f"{place}.when"), rule.requires, rule.weight))
        object.__setattr__(self, "_propositions", known)
        object.__setattr__(self, "_circuits", circuits)

    def tokens(self, resources: RunResources, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """Return minus the cost of each turn at its last token, [completions] tensors of [tokens of it]."""
        costs = [self._costs(rollout) for rollout in rollouts]
        share = sum(any(row) for row in costs) / max(1, len(costs))
        free = self.most is not None and share <= self.most
        rows = []
        for rollout, of_turns in zip(rollouts, costs, strict=True):
            row = torch.zeros(len(rollout.completion))
            for turn, cost in zip(turns_of(rollout), of_turns, strict=True):
                row[turn.stop - 1] -= 0.0 if free else cost
            rows.append(row)
        return rows

    def _costs(self, rollout: Rollout) -> list[float]:
        turns = [turn if rollout.episode.turns else turn._replace(text=rollout.text) for turn in turns_of(rollout)]
        return violations(turns, vars(self)["_circuits"], vars(self)["_propositions"])


def _compiled(pattern: str, where: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    except re.error as error:
        raise UserError(f"{where}: {pattern!r} is not a regular expression ({error})") from None
