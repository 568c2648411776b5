"""The engine of several ranks: the first rank runs it, and its results are sent to the others.

Each rank therefore has the same rollouts, and makes the same decisions from them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from torch import Tensor

from models.base.ranks import Ranks
from models.engines.engine import CompletionRequest, Engine, Generated, TokenSampling


class FirstRankEngine(Engine):
    """The first rank's engine for all ranks; see `models.engines.engine.Engine`.

    All ranks call every method, in the same order.

    Args:
        engine: the engine on the first rank; None on the others.
        ranks: ranks that receive the results. Their messages need a channel of their own (`Ranks.apart`), because an
            engine may be called from its own thread.
    """

    def __init__(self, engine: Engine | None, ranks: Ranks) -> None:
        self._ranks, self._engine = ranks, engine
        self.dtype, self.vocabulary, self.longest, self.version, self.room = ranks.from_first(
            lambda: (self._own.dtype, self._own.vocabulary, self._own.longest, self._own.version, self._own.room)
        )

    @property
    def _own(self) -> Engine:
        assert self._engine is not None, "the first rank has the engine"
        return self._engine

    def members(self) -> Sequence[Engine]:
        """See `Engine.members`."""
        engines = self._engine.members() if self._engine is not None else []
        count = self._ranks.from_first(lambda: len(engines))
        if count == 1:
            return (self,)
        return [FirstRankEngine(engines[number] if engines else None, self._ranks) for number in range(count)]

    def complete(self, requests: Sequence[CompletionRequest], drawing: TokenSampling) -> list[Generated]:
        """See `Engine.complete`."""
        return self._ranks.from_first(lambda: self._own.complete(requests, drawing))

    def serve(
        self,
        requests: Mapping[int, CompletionRequest],
        drawing: TokenSampling,
        steps: int,
        dropped: Collection[int] = (),
    ) -> dict[int, Generated]:
        """See `Engine.serve`."""
        return self._ranks.from_first(lambda: self._own.serve(requests, drawing, steps, dropped))

    def score(self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `Engine.score`."""
        return self._ranks.from_first(lambda: self._own.score(prompts, completions))

    def load(self, weights: Iterable[tuple[str, Tensor]], version: int = 0) -> None:
        """See `Engine.load`. Each tensor may be assembled on demand, so every rank iterates over all of them."""
        remaining = iter(weights)
        if self._engine is not None:
            self._engine.load(remaining, version)
        for _ in remaining:
            pass
        self.version = version

    def sleep(self) -> None:
        """See `Engine.sleep`."""
        if self._engine is not None:
            self._engine.sleep()

    def close(self) -> None:
        """See `Engine.close`."""
        if self._engine is not None:
            self._engine.close()
