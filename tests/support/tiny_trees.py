"""A decision process of a few words that tests of trees share, and a policy that draws each word alike."""

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
from tests.support.tiny_worlds import CODEC

ACTIONS = ("1", "2", "3")
DEPTH = 3
IDS = {action: ids[0] for action, ids in zip(ACTIONS, CODEC.inside(list(ACTIONS)), strict=True)}


def worth_of(actions: Sequence[str]) -> float:
    """What a sequence of actions is worth, in [0, 1): as good as drawn, so nothing but trying finds the best."""
    return hashlib.sha256(" ".join(actions).encode()).digest()[0] / 256


BEST = max(itertools.product(ACTIONS, repeat=DEPTH), key=worth_of)
"""The optimum, by going through all 27."""


def share_of_best(actions: Sequence[str]) -> float:
    """How many actions are those of the optimum, in [0, 1]: where there is something to go by."""
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
    """Three actions, each 1, 2 or 3; the reward comes last."""

    name = "lottery"
    forgetful: bool = False
    """Answers otherwise each time it is opened."""
    pays: Callable[[Sequence[str]], float] = worth_of
    opened: Any = None

    def __post_init__(self) -> None:
        if self.opened is None:
            object.__setattr__(self, "opened", [])

    def open(self, problem: Problem) -> EnvironmentEpisode:
        return _Lottery(self)


class Alike(Engine):
    """A policy over three actions, each as likely as the others, whatever stands before."""

    dtype = torch.float64
    vocabulary = 24

    def each(self, asks: Sequence[CompletionRequest], drawing: TokenSampling) -> list[Generated]:
        chance = torch.log(torch.tensor([1 / 3, 1.0], dtype=torch.float64))
        drawn = [IDS[ACTIONS[hashlib.sha256(str(ask.seed).encode()).digest()[0] % 3]] for ask in asks]
        return [Generated((action, CODEC.end), chance.clone(), True) for action in drawn]

    def score(self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> list[list[float]]:
        return [[float(torch.log(torch.tensor(1 / 3)))] * len(row) for row in completions]

    def load(self, weights: Iterable[tuple[str, Tensor]], version: int = 0) -> None:
        return None

    def close(self) -> None:
        return None
