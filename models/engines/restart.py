"""Restart of a broken engine: the request is repeated on a new one, so the step is not lost.

A request contains its seed and an engine draws by nothing else, so the second answer equals the first. The weights of
the last sync are stored (`models.engines.kept`), because the learner may already have changed its own, if it fits while
the engine generates.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from models.base.errors import UserError
from models.base.memory import is_out_of_memory
from models.engines.engine import CompletionRequest, Engine, Generated, TokenSampling
from models.engines.kept import WeightStore
from models.engines.voice import JointDecoding, complete_jointly
from models.policies.build import first_line

RESTARTS = 2
"""Largest number of restarts in one call."""
Result = TypeVar("Result")


class Restarting(Engine):
    """A wrapper of an engine that is restarted if it breaks; see `models.engines.engine.Engine`.

    Args:
        start: opens a new engine on the folder's weights.
        dtype: data type of the engine; weights are stored in it.
        kept: storage of the last synced weights, if several engines share it; None: its own.

    Raises:
        UserError: `start` raises it; in every call: the engine broke again after `RESTARTS` restarts, or ran out of
            memory, which a new one would too.
    """

    def __init__(self, start: Callable[[], Engine], dtype: torch.dtype, kept: WeightStore | None = None) -> None:
        self.start = start
        self.dtype = dtype
        self.kept = WeightStore(dtype) if kept is None else kept
        self.restarts = 0
        self.midway = False
        self.closed = False
        engine = start()
        self.vocabulary, self.longest, self.version = engine.vocabulary, engine.longest, engine.version
        self.room = engine.room
        self.under_way: dict[int, CompletionRequest] = {}
        """Requests in progress, by number."""
        self.serving: Engine | None = None
        """Engine that has all of them; a new engine has none."""
        self.engine: Engine | None = engine

    def complete(self, requests: Sequence[CompletionRequest], drawing: TokenSampling) -> list[Generated]:
        """See `Engine.complete`; a restart during the call changes no completion."""
        return self._lasting("generate", lambda engine: engine.complete(requests, drawing))

    def complete_with(
        self, requests: Sequence[CompletionRequest], drawing: TokenSampling, joint: JointDecoding
    ) -> list[Generated]:
        """See `models.engines.voice.JointEngine`; a restart during the call changes no completion."""
        return self._lasting("generate", lambda engine: complete_jointly(engine, requests, drawing, joint))

    def serve(
        self,
        requests: Mapping[int, CompletionRequest],
        drawing: TokenSampling,
        steps: int,
        dropped: Collection[int] = (),
    ) -> dict[int, Generated]:
        """See `Engine.serve`. Completions in progress in a broken engine start again, with the current weights."""
        self.under_way |= requests
        for number in dropped:
            self.under_way.pop(number, None)

        def serve(engine: Engine) -> dict[int, Generated]:
            known, self.serving = self.serving is engine, engine
            if known:
                return engine.serve(requests, drawing, steps, dropped)
            return engine.serve(dict(self.under_way), drawing, steps)

        ended = self._lasting("serve", serve)
        for number in ended:
            del self.under_way[number]
        return ended

    def score(self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `Engine.score`."""
        return self._lasting("score", lambda engine: engine.score(prompts, completions))

    def load(self, weights: Iterable[tuple[str, Tensor]], version: int = 0) -> None:
        """See `Engine.load`. The values are copied: later changes by the learner do not reach a restarted engine."""
        given = dict(weights)
        self.kept.keep(given.items(), version)
        self._lasting("load", lambda engine: engine.load(given.items(), version))

    def take_kept(self) -> None:
        """Load the weights in the store, for one of several engines that share it."""
        self._lasting("load", lambda engine: engine.load(self.kept.given(), self.kept.version))

    def sleep(self) -> None:
        """See `Engine.sleep`."""
        self._lasting("sleep", lambda engine: engine.sleep())

    def close(self) -> None:
        """See `Engine.close`. Closing twice is allowed; a call in progress in another thread fails."""
        self.closed = True
        engine, self.engine, self.serving = self.engine, None, None
        self.kept.forget()
        if engine is not None:
            engine.close()

    def _lasting(self, what: str, call: Callable[[Engine], Result]) -> Result:
        for broken in range(RESTARTS + 1):
            if self.midway:
                self._bury()  # an interrupted call left its completions in it
            try:
                self.midway = True
                engine = self.engine or self._fresh()
                result = call(engine)
                self.version = engine.version
                self.midway = False
                return result
            except UserError:
                self.midway = False  # bad input is refused before anything begins
                raise
            except (ValueError, TypeError):
                raise  # a new engine would raise the same
            except Exception as error:
                if self.closed:
                    raise  # it broke because it was closed
                reason = f"{type(error).__name__}: {first_line(error)}"
                if is_out_of_memory(error):
                    raise UserError(
                        f"engine: out of memory in {what} ({reason}); lower engine.max_sequences"
                    ) from error
                if broken == RESTARTS:
                    raise UserError(f"engine: it broke {broken + 1} times in one {what} ({reason})") from error
            # Here the error is released, and with it the frames that would keep the broken engine's memory.
            self._bury()
            self.restarts += 1
            warnings.warn(f"engine: it broke in {what} ({reason}); restart {self.restarts}", stacklevel=3)
        raise AssertionError("not reached")

    def _fresh(self) -> Engine:
        if self.closed:
            raise RuntimeError("engine: it was closed")
        engine = self.start()
        if self.closed:  # in another thread during the start
            engine.close()
            raise RuntimeError("engine: it was closed")
        self.engine = engine
        if self.kept.filled:
            engine.load(self.kept.given(), self.kept.version)
        return engine

    def _bury(self) -> None:
        engine, self.engine, self.serving = self.engine, None, None
        if engine is not None:
            try:
                engine.close()
            except Exception as error:
                warnings.warn(f"engine: the broken one did not close ({first_line(error)})", stacklevel=4)
        del engine
        self.midway = False
        gc.unfreeze()  # vLLM freezes what is there when it has started; the broken engine's cycles would stay for ever
        gc.collect()
