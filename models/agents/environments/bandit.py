"""A bandit with Bernoulli arms: the policy names an arm by its letter and reads whether it paid one or nothing.

    b        1
    a        0

The task of BanditBench (EVOLvE, paper 52, arXiv 2410.06238) without contexts. The problem's answer holds the mean
rewards of the arms (see `models.agents.play.arms`), and they are never shown. The same pull of the same episode pays
the same regardless of earlier pulls, and two arms pay independently. The goal is reached if at least half of the second
half of the pulls were of a best arm.
"""

from __future__ import annotations

from random import Random

from models.agents.play.arms import arm_of, means_of
from models.base.bounds import Positive
from models.method.environment import Environment, EnvironmentEpisode, Info
from models.method.problem import Problem
from models.method.registry import part


@part("bandit")
class Bandit(Environment):
    """Arms that pay one or nothing."""

    needs_answers = True
    pulls: Positive = 10
    """Pulls of an episode."""

    def open(self, problem: Problem) -> EnvironmentEpisode:
        """Open an episode with the arms of `problem`."""
        return _Pulls(means_of(problem), self.pulls)


class _Pulls:
    def __init__(self, means: tuple[float, ...], pulls: int) -> None:
        self._means, self._pulls = means, pulls
        self._payments: list[list[float]] = []
        self._best: list[bool] = []

    def reset(self, seed: int) -> tuple[str, Info]:
        random = Random(seed)
        self._payments = [[float(random.random() < mean) for mean in self._means] for _ in range(self._pulls)]
        self._best = []
        return "", {}

    def step(self, turn: str) -> tuple[str, float, bool, bool, Info]:
        arm = arm_of(turn, len(self._means))
        reward = 0.0 if arm is None else self._payments[len(self._best)][arm]
        self._best.append(arm is not None and self._means[arm] == max(self._means))
        over = len(self._best) == self._pulls
        second_half = self._best[self._pulls // 2 :]
        response = "error: name an arm by its letter" if arm is None else str(int(reward))
        return response, reward, over, False, {"solved": 2 * sum(second_half) >= len(second_half)} if over else {}

    def close(self) -> None:
        return None
