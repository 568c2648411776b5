"""An engine as another process asks for it: with plain arrays, one call after the other.

The process that hosts it imports the learning code alone. Nothing is restarted there: whoever asks notices that the
process is gone or that the engine broke, starts another and hands the weights over again.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from models.engine.arrays import AskArrays, GeneratedArrays, Rows, WeightArray
from models.engine.engine import Drawing, Engine, EngineSettings
from models.engine.open_engine import opening
from models.text.end_ids import Ends


@dataclass(frozen=True)
class Order:
    """What an engine is opened with; see `models.engine.open_engine.opening`."""

    folder: Path
    settings: EngineSettings
    longest: int
    end: Ends
    dtype: torch.dtype
    trust_remote_code: bool
    threads: int | None = None
    """Threads that it computes with; None: as many as torch takes by itself."""
    ways: int = 1
    """GPUs, or processes, that its matrices are cut over."""


@dataclass(frozen=True)
class About:
    """What is known of a hosted engine."""

    process: int
    """Its process id."""
    vocabulary: int
    longest: int | None
    room: int
    """Completions that it serves side by side; 0: it cannot."""


class HostedEngine:
    """An engine and its weights on their way to it. Errors are those of `models.engine.engine.Engine`."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._parts: list[list[WeightArray]] = []

    def open(self, order: Order) -> About:
        """Start the engine: no part of making this object, as an error of that would come without its type."""
        if order.threads is not None:
            torch.set_num_threads(order.threads)
            if order.ways > 1:  # its processes share them
                os.environ["OMP_NUM_THREADS"] = str(max(1, order.threads // order.ways))
        self._engine = engine = opening(
            order.folder,
            order.settings,
            longest=order.longest,
            end=order.end,
            seed=0,  # it draws from the seed of each ask alone
            dtype=order.dtype,
            trust_remote_code=order.trust_remote_code,
            ways=order.ways,
        ).start()
        return About(os.getpid(), engine.vocabulary, engine.longest, engine.room)

    def each(self, asks: AskArrays, drawing: Drawing) -> tuple[GeneratedArrays, int]:
        """See `Engine.each`; with the version of the weights that the completions are from."""
        return GeneratedArrays.of(self._opened.each(asks.asks(), drawing)), self._opened.version

    def serve(
        self, numbers: Sequence[int], asks: AskArrays, drawing: Drawing, steps: int, dropped: Collection[int]
    ) -> tuple[list[int], GeneratedArrays, int]:
        """See `Engine.serve`; with the numbers of what ended and the version of the weights."""
        ended = self._opened.serve(dict(zip(numbers, asks.asks(), strict=True)), drawing, steps, dropped)
        return list(ended), GeneratedArrays.of(list(ended.values())), self._opened.version

    def score(self, prompts: Rows, completions: Rows) -> tuple[Rows, int]:
        """See `Engine.score`; with the version of the weights."""
        # float64 holds whatever an engine says, to the last bit
        return Rows.of(self._opened.score(prompts.lists(), completions.lists()), float), self._opened.version

    def receive(self, part: list[WeightArray]) -> None:
        """Take a part of the weights that `load` is to load."""
        self._parts.append(part)

    def load(self, version: int) -> int:
        """See `Engine.load`, of all parts received. Returns the version that the engine now has."""
        try:
            self._opened.load(self._received(), version)
        finally:
            self._parts = []
        return self._opened.version

    def _received(self) -> Iterator[tuple[str, Tensor]]:
        for part in self._parts:
            for array in part:
                yield array.name, array.tensor()

    @property
    def _opened(self) -> Engine:
        assert self._engine is not None, "it was opened"
        return self._engine
