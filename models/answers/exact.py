"""Whether a completion states the expected answer, and a completion that states it."""

from __future__ import annotations

from collections.abc import Sequence

from models.answers.answers import expected_answer, extract_answer, same_answer
from models.method.attempt import Attempt
from models.method.rollout import Rollout


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
