"""Monte-Carlo labels of steps: a step is worth the share of continuations from it that end right.

Sources: Math-Shepherd (arXiv 2312.08935), whose estimates are these; used by papers 86, 279 and 113. Relative progress
is GenPRM's (paper 336): a step of a hard problem is right although few continuations are, if they are not fewer than
before it.

    soft       y_k = (1/K) sum_j [continuation j of (prompt, steps 1 .. k) is right]
    hard       y_k = 1 where any of them is, else 0
    progress   y_k = 1 where M_k / M_{k-1} >= least_progress, else 0    M_k is the share after step k, M_0 the prompt's

The last step of a finished solution is worth the verdict on the solution. Prefixes that several solutions of a prompt
share are continued once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from models.base.bounds import Positive
from models.method.problem import Problem
from models.method.registry import part
from models.reward_models.solutions import LabellingTools, Labels, Solution

Prefix = tuple[tuple[int, ...], tuple[int, ...]]
"""Tokens of a prompt, and those of a completion's beginning."""


@part("monte_carlo")
class MonteCarlo(Labels):
    """The share of continuations from a step that end right."""

    continuations: Positive = 8
    """Continuations per step (K)."""
    kind: Literal["soft", "hard", "progress"] = "soft"
    """soft: the share; hard: 1 if any continuation is right; progress: 1 if the share is not much below that before the
    step, 0 if that was zero."""
    least_progress: NonNegativeFloat = 0.8
    """Least ratio of the shares after and before a right step (progress)."""

    def label(self, bench: LabellingTools, solutions: Sequence[Solution]) -> list[Tensor]:
        """Return the share of right continuations after each step, converted by `kind`.

        The result is [solutions] tensors of [steps].
        """
        first = -1 if self.kind == "progress" else 0
        steps = [(solution, step) for solution in solutions for step in range(first, len(solution.ends))]
        worth = iter(success_rates(bench, steps, self.continuations))
        rows = [torch.tensor([next(worth) for _ in range(first, len(solution.ends))]) for solution in solutions]
        if self.kind == "soft":
            return rows
        return [(row > 0).float() if self.kind == "hard" else progress(row, self.least_progress) for row in rows]


def progress(worth: Tensor, least: float) -> Tensor:
    """Mark the steps that keep up the share of right continuations, [steps + 1] -> [steps], one or zero.

    Args:
        worth: share after the prompt and after each step.
        least: ratio of the shares after and before a right step; a step after a share of zero is not right.
    """
    before, after = worth[:-1], worth[1:]
    return ((before > 0) & (after >= least * before)).float()


def success_rates(bench: LabellingTools, steps: Sequence[tuple[Solution, int]], count: int) -> list[float]:
    """Estimate the share of `count` continuations that end right, after each step of a solution, [steps].

    Args:
        bench: draws continuations and verifies them.
        steps: solution and number of the step, from 0; -1: the whole solution from its prompt.
        count: continuations of each.
    """
    known: dict[Prefix, float] = {}
    pending: dict[Prefix, tuple[Problem, int]] = {}
    for solution, step in steps:
        key, room = _key(solution, step), bench.sampling.max_tokens - len(solution.prefix(step))
        if (step == len(solution.ends) - 1 and solution.finished) or room < 1:
            known[key] = float(solution.right)
        elif key not in known:
            pending[key] = solution.problem, room
    requests = [(key, *details) for key, details in pending.items() if key not in known]
    prompts = [(*prompt, *prefix) for (prompt, prefix), _, _ in requests]
    continuations = bench.continuations(prompts, [room for _, _, room in requests], count)
    completions = [
        ((*key[1], *each.tokens), each.finished)
        for (key, *_), drawn in zip(requests, continuations, strict=True)
        for each in drawn
    ]
    problems = [problem for _, problem, _ in requests for _ in range(count)]
    _, right = bench.judged(problems, [ids for ids, _ in completions], [finished for _, finished in completions])
    for place, (key, *_) in enumerate(requests):
        known[key] = sum(right[place * count : (place + 1) * count]) / count
    return [known[_key(solution, step)] for solution, step in steps]


def _key(solution: Solution, step: int) -> Prefix:
    return solution.problem.tokens, solution.prefix(step)
