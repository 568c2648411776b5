"""Bandits: the problem's answer holds the mean reward of each arm, and a turn names an arm by its letter.

answer 0.2 0.7 0.4      arms a, b and c, and the probability that each pays one
"""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase

from models.base.errors import UserError
from models.method.problem import Problem


def means_of(problem: Problem) -> tuple[float, ...]:
    """Return the mean reward of each arm, [arms], in [0, 1].

    Raises:
        UserError: the answer does not hold two or more such numbers.
    """
    try:
        means = tuple(float(word) for word in problem.answer.split())
    except ValueError:
        means = ()
    if not 2 <= len(means) <= len(ascii_lowercase) or not all(0 <= mean <= 1 for mean in means):
        raise UserError(
            f"problem {problem.id}: its answer is to be the means of 2 to {len(ascii_lowercase)} arms, numbers from 0 "
            f"to 1, not {problem.answer!r}"
        )
    return means


def arm_of(turn: str, arms: int) -> int | None:
    """Return the number of the arm that a turn names, from 0; None if the turn is not the letter of an arm."""
    letter = turn.strip()
    place = ascii_lowercase.find(letter) if len(letter) == 1 else -1
    return place if 0 <= place < arms else None


def gaps(turns: Sequence[str], means: Sequence[float]) -> list[float]:
    """Return the gap between the means of the best arm and of each turn's arm, [turns].

    A turn that names no arm counts as the worst arm.
    """
    best, worst = max(means), min(means)
    arms = [arm_of(turn, len(means)) for turn in turns]
    return [best - (worst if arm is None else means[arm]) for arm in arms]
