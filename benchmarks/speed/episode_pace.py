"""Episodes in waves and each at its own pace (`rollouts.waves`), with slow environments. Both sides are ours.

An environment takes 10 ms for an answer, one in eight 0.3 s, as calls of tools do; turns end after 12 tokens in the
mean. In waves the answers are awaited one after the other, while the engine is idle; at its own pace an episode waits
only for its own answer, while others are generated. The two sides take turns in one process, on the same weights, seeds
and delays, and play the same episodes (tests check that).
"""

from __future__ import annotations

import random
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.shared.alternate import REST
from benchmarks.shared.materials import SPECIALS, VOCABULARY, llama, save, token_lists, word_tokenizer
from benchmarks.shared.rows import Row, compare
from benchmarks.shared.settings import Settings
from models.agents.play.play import play
from models.engines.engine import EngineSettings, Sampling
from models.engines.transformers_engine import TransformersEngine
from models.method.environment import Environment, EnvironmentEpisode, EpisodeSettings, Info
from models.method.episode import EpisodeLimits
from models.method.problem import Problem
from models.text.encoding import Codec

PROMPTS, GROUP, TURNS = 8, 8, 6
TURN = 12
"""Mean tokens of a turn."""
QUICK, SLOW, SHARE = 0.01, 0.3, 1 / 8
"""Seconds of an answer, of a slow one, and the share of slow ones."""


class _Waiting:
    def __init__(self) -> None:
        self.random = random.Random()

    def reset(self, seed: int) -> tuple[str, Info]:
        self.random.seed(seed)
        return "", {}

    def step(self, turn: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        time.sleep(SLOW if self.random.random() < SHARE else QUICK)
        return "w000007", 0.0, False, False, {}

    def close(self) -> None:
        return None


@dataclass(frozen=True, kw_only=True)
class DelayEnvironment(Environment):
    """Environment that answers with a word, after a while."""

    name = "waiting"

    def open(self, problem: Problem) -> EnvironmentEpisode:
        """Open an episode."""
        return _Waiting()


def measure(settings: Settings, name: str) -> list[Row]:
    """Measure one row."""
    prompts, turns = (2, 2) if settings.quick else (PROMPTS, TURNS)
    codec = Codec(word_tokenizer(), also_end=tuple(range(SPECIALS, SPECIALS + VOCABULARY // TURN)))
    drawn = token_lists(prompts, 32, seed=5)
    problems = [Problem(f"p{number}", "", tokens=tuple(ids)) for number, ids in enumerate(drawn)]
    limits = EpisodeLimits(turns=turns, turn_tokens=None, seconds=10.0, at_last_turn="kept", when_stuck="masked")
    sampling = Sampling(max_tokens=1024, samples=GROUP)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    made: dict[bool, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        save(llama(), word_tokenizer(), Path(folder))
        engine = TransformersEngine(Path(folder), EngineSettings(), end=codec.ends)
        for turn in range(settings.warm + settings.samples):
            for waves in seconds:
                chosen = EpisodeSettings(environment=DelayEnvironment(), limits=limits, role="user", waves=waves)
                time.sleep(REST)
                began = time.perf_counter()
                played = play(engine, codec, chosen, problems, sampling, turn)
                if turn >= settings.warm:
                    seconds[waves].append(time.perf_counter() - began)
                made[waves] = sum(len(episode.tokens) for group in played for episode in group)
        engine.close()
    return [
        compare(
            f"{prompts * GROUP} episodes of {turns} turns, answers of {QUICK:g} s, "
            f"one in {round(1 / SHARE)} of {SLOW:g} s",
            seconds[False],
            seconds[True],
            "s",
            2.0,
            smaller_is_better=True,
            against="in waves",
            details={"tokens": made[False], "tokens_of_peer": made[True]},
        )
    ]
