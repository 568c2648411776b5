"""Share of the instruction's constraints that a completion meets, checked by program (Light-IF, paper 257, 2508.03178).

    value = (constraints met) / (constraints) + bonus where all are met

A problem's answer is JSON, `{"constraints": [{"kind": "words", "most": 5}, {"kind": "forbids", "text": "red"}]}`, with
the kinds of `models.formulas.constraints`. Right, in evaluations and at the gate too, is what meets all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from models.episodes.hidden import hidden
from models.formulas.constraints import Constraints, met
from models.loop.attempt import Attempt
from models.loop.rollout import Problem, Rollout
from models.loop.slots import Reward
from models.loop.world import World
from models.parts import part


@part("constraints")
class ConstraintsMet(Reward):
    """How much of an instruction is followed; nothing of it by a completion that was cut."""

    needs_answers = True
    verifies = True
    bonus: NonNegativeFloat = 0.0
    """What it is worth besides that all are met."""

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """Values in [0, 1 + bonus], [completions]."""
        held = [_held(each.problem, each.text, each.finished) for each in rollouts]
        return torch.tensor([sum(each) / len(each) + self.bonus * all(each) for each in held])

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Which attempts end and meet all constraints, [attempts]."""
        return [all(_held(problem, text, finished)) for problem, text, finished in attempts]


def _held(problem: Problem, text: str, finished: bool) -> list[bool]:
    return met(text if finished else "", _constraints(problem))


@lru_cache(maxsize=4096)
def _constraints(problem: Problem) -> Constraints:
    return hidden(problem, Constraints, "constraints")
