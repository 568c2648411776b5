"""Rule-based reward: the volume that a completion's solid shares with that of the answer (CAD-RL, paper 246).

    value = executes * [the program can be read] + volume of the intersection / volume of the union

Completion and answer are programs of `models.answers.solids`. Different programs may make one solid, which supervised
learning on texts does not know. A completion that cannot be read is worth zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from models.answers.marked_answers import without_reasoning
from models.answers.solids import Cells, UnreadableSolidError, overlap, solid
from models.base.bounds import Share
from models.base.errors import UserError
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout


@part("solid")
class Solid(Reward):
    """Shared volume of the completion's solid and that of the answer, from 0 to 1, and a bonus for any solid."""

    needs_answers = True
    verifies = True
    executes: NonNegativeFloat = 0.0
    """Bonus of a program that can be read."""
    right_from: Share = 1.0
    """Smallest shared volume of a right solid."""

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return the shared volume and the bonus, [completions]."""
        shared = [_shared(Attempt.of(rollout)) for rollout in rollouts]
        return torch.tensor([0.0 if value is None else self.executes + value for value in shared])

    def stated(self, problem: Problem) -> str:
        """Return the program of the answer."""
        return problem.answer

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Return whether each attempt ended with a solid that is like enough, [attempts]."""
        return [(_shared(attempt) or 0.0) >= self.right_from for attempt in attempts]


def _shared(attempt: Attempt) -> float | None:
    """Return the shared volume; None: the completion was cut or cannot be read."""
    try:
        expected = _expected(attempt.problem.answer)
    except UnreadableSolidError as error:
        raise UserError(f"problem {attempt.problem.id}: the answer is not a solid: {error}") from None
    try:
        return overlap(solid(without_reasoning(attempt.text)), expected) if attempt.finished else None
    except UnreadableSolidError:
        return None


@lru_cache(maxsize=4096)
def _expected(answer: str) -> Cells:
    return solid(answer)
