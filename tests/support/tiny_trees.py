"""A small decision process that the tests of trees share, and a policy that samples its actions uniformly."""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from models.engines.engine import CompletionRequest, Engine, Generated, TokenSampling
from models.method.environment import Environment, EnvironmentEpisode
from models.method.problem import Problem
from tests.support.tiny_resources import CODEC

ACTIONS = ("1", "2", "3")
DEPTH = 3
IDS = {action: ids[0] for action, ids in zip(ACTIONS, CODEC.inside(list(ACTIONS)), strict=True)}


def worth_of(actions: Sequence[str]) -> float:
    """Return the value of a sequence of actions, in [0, 1). It is a hash, so that only trying finds the best one."""
    return hashlib.sha256(" ".join(actions).encode()).digest()[0] / 256


BEST = max(itertools.product(ACTIONS, repeat=DEPTH), key=worth_of)
"""The sequence with the highest value, found by enumerating all 27."""


def share_of_best(actions: Sequence[str]) -> float:
    """Return the share of the actions that agree with the optimum, in [0, 1]: a reward that can guide a search."""
    return sum(taken == best for taken, best in zip(actions, BEST, strict=True)) / DEPTH


class _Lottery:
    def __init__(self, settings: "Lottery") -> None:
        self.settings, self.taken = settings, list[str]()

    def reset(self, seed: int) -> tuple[str, dict[str, Any]]:
        self.settings.opened.append(seed)
        return "", {"state": ""}

    def step(self, turn: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.taken.append(turn)
        over = len(self.taken) == DEPTH
        info: dict[str, Any] = {"state": " ".join(self.taken)}
        if over:
            info["solved"] = tuple(self.taken) == BEST
        words = "+" if not self.settings.forgetful else str(len(self.settings.opened) % 16)
        return words, self.settings.pays(self.taken) if over else 0.0, over, False, info

    def close(self) -> None:
        return None


@dataclass(frozen=True, kw_only=True)
class Lottery(Environment):
    """An episode of three actions, each 1, 2 or 3. The reward comes after the last one."""

    name = "lottery"
    forgetful: bool = False
    """Whether its answers change with the number of times that it was reset, so that an episode cannot be repeated."""
    pays: Callable[[Sequence[str]], float] = worth_of
    opened: Any = None

    def __post_init__(self) -> None:
        if self.opened is None:
            object.__setattr__(self, "opened", [])

    def open(self, problem: Problem) -> EnvironmentEpisode:
        return _Lottery(self)


class Alike(Engine):
    """A policy that takes each of three actions with probability 1/3 after every prompt."""

    dtype = torch.float64
    vocabulary = 24

    def complete(self, requests: Sequence[CompletionRequest], drawing: TokenSampling) -> list[Generated]:
        chance = torch.log(torch.tensor([1 / 3, 1.0], dtype=torch.float64))
        drawn = [IDS[ACTIONS[hashlib.sha256(str(ask.seed).encode()).digest()[0] % 3]] for ask in requests]
        return [Generated((action, CODEC.end), chance.clone(), True) for action in drawn]

    def score(self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> list[list[float]]:
        return [[float(torch.log(torch.tensor(1 / 3)))] * len(row) for row in completions]

    def load(self, weights: Iterable[tuple[str, Tensor]], version: int = 0) -> None:
        return None

    def close(self) -> None:
        return None
