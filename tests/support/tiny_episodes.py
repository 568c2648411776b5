"""Shared code for tests of episodes: an environment that answers each turn, and an engine that records its requests."""

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from models.engines.engine import CompletionRequest, Generated, TokenSampling
from models.engines.transformers_engine import TransformersEngine
from models.method.environment import Environment, EnvironmentEpisode
from models.method.problem import Problem
from models.method.readings import Readings
from models.method.rollout import Rollout
from models.parts.rollouts.episodes import Episodes
from models.text.encoding import Codec
from tests.support.tiny_loops import SCHEDULE, new_learner
from tests.support.tiny_resources import CODEC

ENDING = Codec(CODEC.tokenizer, also_end=tuple(ids[0] for ids in CODEC.inside(["=", ";", "+", "5"])))
"""A codec in which many tokens end a turn, so that the turns of an untrained policy end."""
WORDS = ["3 + 4", "5", "9 = ;", "7 7", "= 8 + 1"]
"""The environment's answers. The policy's tokenizer knows each word."""


class Listening(TransformersEngine):
    """An engine that records its requests and its answers."""

    asked: list[tuple[CompletionRequest, Generated]]

    def complete(self, requests: Sequence[CompletionRequest], drawing: TokenSampling) -> list[Generated]:
        made = super().complete(requests, drawing)
        self.asked = [*getattr(self, "asked", []), *zip(requests, made, strict=True)]
        return made


class _Chatter:
    def __init__(self, settings: "Chatter") -> None:
        self.settings, self.taken, self.seed = settings, 0, 0

    def reset(self, seed: int) -> tuple[str, dict[str, Any]]:
        self.seed = seed
        return self.settings.greeting, {"state": "begun"}

    def step(self, turn: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.taken += 1
        if self.settings.act is not None:
            self.settings.act(turn)
        digest = hashlib.sha256(f"{self.seed} {turn}".encode()).digest()
        over = self.taken == self.settings.lasts
        words = self.settings.words or WORDS[digest[0] % len(WORDS)]
        return words, self.settings.pays(turn), over, False, {"state": words, "solved": "7" in turn} if over else {}

    def close(self) -> None:
        self.settings.closed.append(self.taken)


@dataclass(frozen=True, kw_only=True)
class Chatter(Environment):
    """An environment that answers every turn by a few pseudo-random words. A turn's reward is its number of sevens."""

    name = "chatter"
    lasts: int = 3
    words: str = ""
    greeting: str = ""
    act: Callable[[str], None] | None = None
    pays: Callable[[str], Any] = lambda turn: float(turn.count("7"))
    closed: Any = None

    def __post_init__(self) -> None:
        if self.closed is None:
            object.__setattr__(self, "closed", [])

    def open(self, problem: Problem) -> EnvironmentEpisode:
        return _Chatter(self)


def hang(turn: str) -> None:
    time.sleep(60)


def episodes(environment: Environment, **settings: Any) -> Episodes:
    """Return rollouts in the given environment."""
    return Episodes(**{"prompts": 4, "group_size": 4, "max_tokens": 48, "environment": environment, **settings})


def gap(rollouts: Sequence[Rollout]) -> float:
    """Return the largest difference between the log-probs of engine and learner on the policy's tokens."""
    read = Readings(new_learner(SCHEDULE), 4096).policy(rollouts)
    gaps = [
        (said - row.cpu())[torch.tensor(rollout.written)].abs().max()
        for rollout, row in zip(rollouts, read, strict=True)
        if (said := rollout.behaviour_log_probs) is not None
    ]
    assert len(gaps) == len(rollouts)
    return float(torch.stack(gaps).max())
