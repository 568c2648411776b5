"""A bandit with Bernoulli arms: the policy names an arm by its letter and reads whether it gave one or nothing.

    b        1
    a        0

The task of BanditBench (EVOLvE, paper 52, arXiv 2410.06238) without contexts. What the arms are worth stands in the
problem's answer, as `models.episodes.arms` says, and is never shown. The same pull of the same episode gives the same
whatever was pulled before, and two arms give independently. The goal is reached where at least half of the second half
of the pulls were of a best arm.
"""

from __future__ import annotations

from random import Random

from models.bounds import Positive
from models.episodes.arms import arm_of, means_of
from models.episodes.environment import Environment, Info, Opened
from models.loop.rollout import Problem
from models.parts import part


@part("bandit")
class Bandit(Environment):
    """Arms that give one or nothing."""

    needs_answers = True
    pulls: Positive = 10
    """Of an episode."""

    def open(self, problem: Problem) -> Opened:
        """An episode with the arms of `problem`."""
        return _Pulls(means_of(problem), self.pulls)


class _Pulls:
    def __init__(self, means: tuple[float, ...], pulls: int) -> None:
        self._means, self._pulls = means, pulls
        self._gives: list[list[float]] = []
        self._best: list[bool] = []

    def reset(self, seed: int) -> tuple[str, Info]:
        random = Random(seed)
        self._gives = [[float(random.random() < mean) for mean in self._means] for _ in range(self._pulls)]
        self._best = []
        return "", {}

    def step(self, turn: str) -> tuple[str, float, bool, bool, Info]:
        arm = arm_of(turn, len(self._means))
        given = 0.0 if arm is None else self._gives[len(self._best)][arm]
        self._best.append(arm is not None and self._means[arm] == max(self._means))
        over = len(self._best) == self._pulls
        later = self._best[self._pulls // 2 :]
        heard = "error: name an arm by its letter" if arm is None else str(int(given))
        return heard, given, over, False, {"solved": 2 * sum(later) >= len(later)} if over else {}

    def close(self) -> None:
        return None
