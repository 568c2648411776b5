"""Rule-based verifier: one if the final answer of a completion equals the problem's, zero otherwise."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.loop.attempt import Attempt
from models.loop.rollout import Problem, Rollout
from models.loop.slots import Reward
from models.loop.world import World
from models.parts import part
from models.text.answers import expected_answer, extract_answer, same_answer


def is_right(text: str, answer: str, *, finished: bool) -> bool:
    """Return whether the final answer stated in `text` equals `answer`.

    Text without an answer is wrong, and so is text that did not end: `#### 4` may be the beginning of `#### 42`.
    """
    given = extract_answer(text) if finished else None
    return given is not None and same_answer(given, answer)


def by_answer(attempts: Sequence[Attempt]) -> list[bool]:
    """Return whether each attempt ended and states the answer of its problem, [attempts]."""
    return [is_right(text, problem.answer, finished=finished) for problem, text, finished in attempts]


def marked(answer: str) -> str:
    """Return a completion that states a problem's answer."""
    return f"#### {expected_answer(answer)}"


def solves(rollout: Rollout) -> bool:
    """Return whether a completion ended and states the answer of its problem."""
    return is_right(rollout.text, rollout.problem.answer, finished=rollout.finished)


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

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """Return one or zero for each completion, [completions]."""
        return torch.tensor([float(solves(rollout)) for rollout in rollouts])
