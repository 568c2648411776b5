"""A B A B: two training runs that take turns, a step at a time, each side in a process of its own.

A training run is a function that calls `beat()` after each of its steps; here it is a whole `run_loop` of this project
or a whole `Trainer.train()` of TRL, as a user would call it. It waits inside `beat()` until it is released, so that
only one side computes at a time. It runs in the main thread, as a user's run does: a second thread that computes has
OpenMP workers of its own, and with more workers than cores all of them sleep between two calls, which is a third
slower. It runs in a process of its own, so that neither side meets the other's setup (vLLM opens a process group, which
a Trainer would take for its own). A step's seconds are those from the release to the next beat; the time before the
first release and the warm-up steps are not counted. Before each turn the garbage is collected, and a short rest lets
the other side's idle worker threads go to sleep.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.util import Finalize
from typing import Any, TypeVar

from greenlet import greenlet

Beat = Callable[[], None]
REST = 0.25
"""Seconds between two turns: OpenMP's worker threads spin for up to 0.2 s after their last work."""


class Stopped(BaseException):
    """Ends a run from within; not an Exception, so that no trainer swallows it."""


class Stepper:
    """A training run that advances step by step, in the calling thread."""

    def __init__(self, run: Callable[[Beat], Any]) -> None:
        self._run = run
        self._inside = greenlet(self._whole)
        self._released = 0.0

    def advance(self, steps: int) -> list[float]:
        """Run `steps` more steps. Returns the seconds of each.

        Raises:
            BaseException: any exception of the run; RuntimeError if it ended too early.
        """
        seconds: list[float] = []
        for _ in range(steps):
            self._released = time.perf_counter()
            beat = None if self._inside.dead else self._inside.switch()
            if beat is None:
                raise RuntimeError("the run ended before the benchmark did")
            seconds.append(beat)
        return seconds

    def stop(self) -> None:
        """End the run."""
        if not self._inside.dead:
            self._inside.throw(Stopped)
        gc.collect()

    def _beat(self) -> None:
        self._inside.parent.switch(time.perf_counter() - self._released)

    def _whole(self) -> None:
        with suppress(Stopped):
            self._run(self._beat)


Made = tuple[Stepper, dict[str, Any]]
"""A training run and its report, which may grow while it runs."""


class StepperProcess:
    """A stepper in a process of its own, made there by `make` (picklable: a module's function or a partial of one)."""

    def __init__(self, make: Callable[[], Made]) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(theirs, make))
        self._process.start()
        theirs.close()
        Finalize(self, self._pipe.close, exitpriority=10)  # the process ends when no caller is left
        self._answer()  # work during its setup must not overlap with the other side's

    def advance(self, steps: int) -> list[float]:
        """Run as `Stepper.advance`.

        Raises:
            RuntimeError: the run failed, with its own traceback as text.
        """
        self._pipe.send(steps)
        return list(self._answer())

    def stop(self) -> dict[str, Any]:
        """End the run. Returns its maker's report."""
        self._pipe.send(None)
        answer: dict[str, Any] = self._answer()
        self._process.join(timeout=60)
        return answer

    def _answer(self) -> Any:
        try:
            kind, value = self._pipe.recv()
        except EOFError:
            raise RuntimeError("a side's process ended without a word") from None
        if kind == "error":
            raise RuntimeError(value)
        return value


Side = TypeVar("Side", Stepper, StepperProcess)


def _serve(pipe: Connection, make: Callable[[], Made]) -> None:
    """Serve a side's process: receive an order, send an answer, until the order to stop or the end of the
    connection."""
    try:
        stepper, report = make()
        pipe.send(("made", None))
        while (steps := pipe.recv()) is not None:
            gc.collect()
            pipe.send(("seconds", stepper.advance(steps)))
        stepper.stop()
        pipe.send(("report", report))
    except EOFError:
        pass
    except BaseException:
        pipe.send(("error", traceback.format_exc()))


def alternate(
    sides: Mapping[str, Stepper | StepperProcess], *, warm: int, repeats: int, steps: int = 1
) -> dict[str, list[float]]:
    """Return the seconds a step of each side, `repeats` samples each, taken in turns.

    Args:
        warm: steps that every side takes first, uncounted.
        steps: steps of one turn; a sample is their mean.
    """
    for stepper in sides.values():
        stepper.advance(warm)
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, stepper in sides.items():
            time.sleep(REST)
            seconds[name].append(sum(stepper.advance(steps)) / steps)
    return seconds


def fastest_alone(
    candidates: Mapping[str, Callable[[], StepperProcess]], *, tries: int = 1
) -> tuple[StepperProcess, dict[str, Any]]:
    """Try every candidate in a process that has the machine to itself; begin the fastest again.

    `fastest` cannot be used if two candidates do not fit into the memory together. A candidate whose process dies, for
    example because the memory is full, is left out.

    Returns:
        The fastest, and its name with the seconds of a step of each.

    Raises:
        RuntimeError: none of them runs.
    """
    tried: dict[str, float | str] = {}
    for name, begin in candidates.items():
        try:
            stepper = begin()
            stepper.advance(1)
            tried[name] = min(stepper.advance(tries))
            stepper.stop()
        except RuntimeError as error:
            tried[name] = f"does not run: {error}"[:300]
    seconds = {name: value for name, value in tried.items() if isinstance(value, float)}
    if not seconds:
        raise RuntimeError(f"no way to run this side works: {tried}")
    best = min(seconds, key=lambda name: seconds[name])
    return candidates[best](), {"setting": best, "tried_seconds": tried}


def fastest(candidates: Mapping[str, Callable[[], Side]], *, tries: int = 1) -> tuple[Side, dict[str, Any]]:
    """Begin every candidate, for one warm-up step and `tries` more; keep the fastest, still running, end the others.

    Returns:
        The fastest, and its name with the best seconds a step of each (none if there is only one).

    Raises:
        RuntimeError: none of them runs.
    """
    tried: dict[str, float | str] = {}
    best: tuple[float, str, Side] | None = None
    for name, begin in candidates.items():
        stepper = begin()
        try:
            stepper.advance(1)
            seconds = min(stepper.advance(tries)) if len(candidates) > 1 else 0.0
        except Exception as error:
            tried[name] = f"does not run: {error!r}"[:300]
            continue
        tried[name] = seconds
        if best is None or seconds < best[0]:
            if best is not None:
                best[2].stop()
            best = (seconds, name, stepper)
        else:
            stepper.stop()
    if best is None:
        raise RuntimeError(f"no way to run this side works: {tried}")
    return best[2], {"setting": best[1], "tried_seconds": tried}
