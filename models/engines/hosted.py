"""An engine that another process calls with plain arrays, one call after the other.

The process that hosts it imports the learning code alone. It restarts nothing: the caller notices that the process has
died or that the engine broke, starts another and sends the weights again.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from models.base.images import add_images
from models.engines.arrays import GeneratedArrays, RequestArrays, Rows, WeightArray
from models.engines.engine import Engine, EngineSettings, TokenSampling
from models.engines.open_engine import opening
from models.text.end_ids import Ends


@dataclass(frozen=True)
class Order:
    """Arguments for opening an engine; see `models.engines.open_engine.opening`."""

    folder: Path
    settings: EngineSettings
    longest: int
    end: Ends
    dtype: torch.dtype
    trust_remote_code: bool
    threads: int | None = None
    """Threads of the computation; None: torch's default."""
    ways: int = 1
    """GPUs, or processes, that its matrices are split over."""


@dataclass(frozen=True)
class About:
    """Properties of a hosted engine."""

    process: int
    """Process id."""
    vocabulary: int
    longest: int | None
    room: int
    """Completions that it serves at the same time; 0: serving is not supported."""


class HostedEngine:
    """An engine for calls from another process, and received weights that are not loaded yet. Errors: see `Engine`."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._parts: list[list[WeightArray]] = []

    def open(self, order: Order) -> About:
        """Start the engine. This is not done in the constructor, because an error there would lose its type."""
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

    def add_images(self, contents: Mapping[str, bytes]) -> None:
        """Make the images of prompts known to the process of the engine."""
        add_images(contents)

    def complete(self, requests: RequestArrays, drawing: TokenSampling) -> tuple[GeneratedArrays, int]:
        """See `Engine.complete`; also returns the version of the weights of the completions."""
        return GeneratedArrays.of(self._opened.complete(requests.requests(), drawing)), self._opened.version

    def serve(
        self,
        numbers: Sequence[int],
        requests: RequestArrays,
        drawing: TokenSampling,
        steps: int,
        dropped: Collection[int],
    ) -> tuple[list[int], GeneratedArrays, int]:
        """See `Engine.serve`; also returns the numbers of the finished completions and the version of the weights."""
        ended = self._opened.serve(dict(zip(numbers, requests.requests(), strict=True)), drawing, steps, dropped)
        return list(ended), GeneratedArrays.of(list(ended.values())), self._opened.version

    def score(self, prompts: Rows, completions: Rows) -> tuple[Rows, int]:
        """See `Engine.score`; also returns the version of the weights."""
        # float64 holds every result of an engine, to the last bit
        return Rows.of(self._opened.score(prompts.lists(), completions.lists()), float), self._opened.version

    def receive(self, part: list[WeightArray]) -> None:
        """Store a part of the weights for `load`."""
        self._parts.append(part)

    def load(self, version: int) -> int:
        """See `Engine.load`; loads all parts received. Returns the version of the engine's weights."""
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
