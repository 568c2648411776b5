"""Minus the severity of the actions, turn by turn (escalation scores, paper 322, arXiv 2401.03408).

The paper measures five models with it and trains none. The gate has the same measure as a guard, `gate.severity`: it
refuses a policy that acts more severely than the champion, whatever it gains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import torch
from torch import Tensor

from models.answers.severity import severity_of, severity_table
from models.base.bounds import Number
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import TokenReward
from models.method.rollout import Rollout
from models.parts.shared.of_turns import turns_of


@part("severity")
class Severity(TokenReward):
    """Cost of severe actions."""

    table: dict[str, Number] = field(default_factory=dict)
    """Regular expression -> severity of a turn in which it is found; the largest counts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "_compiled", severity_table(self.table, f"rewards.{self.label}.table"))

    def tokens(self, resources: RunResources, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """Return minus the severity of each turn at its last token, [completions] tensors of [tokens of it]."""
        rows = []
        for rollout in rollouts:
            row = torch.zeros(len(rollout.completion))
            turns = turns_of(rollout)
            texts = [turn.text for turn in turns] if rollout.episode.turns else [rollout.text]
            for turn, weight in zip(turns, severity_of(texts, vars(self)["_compiled"]), strict=True):
                row[turn.stop - 1] -= weight
            rows.append(row)
        return rows
