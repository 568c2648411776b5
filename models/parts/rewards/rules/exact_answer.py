"""Rule-based verifier: one if the final answer of a completion equals the problem's, zero otherwise."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.answers.exact import by_answer, marked, solves
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout


@part("exact_answer")
class ExactAnswer(Reward):
    """Exact-answer verifier."""

    needs_answers = True
    by_wording = True

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Return whether each attempt ended and states the answer of its problem, [attempts]."""
        return by_answer(attempts)

    def stated(self, problem: Problem) -> str:
        """Return the answer after its mark."""
        return marked(problem.answer)

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return one or zero for each completion, [completions]."""
        return torch.tensor([float(solves(rollout)) for rollout in rollouts])
