"""Processes that compare expressions: batches are sent to all of them, and a process that hangs or dies costs one pair.

Each has its own main thread, where the comparison's time limits are signals. Code that never checks for signals, such
as powers of huge numbers, is ended with its process. The current pair then counts as different, and another process
continues after it. A process ends with the one that started it, however that ends.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

Pair = tuple[str, str]
"""Given answer and expected answer."""

BATCH = 32
"""Pairs that a process gets at a time."""
START = 120.0
"""Seconds that a process may take to start: SymPy is large."""
GRACE = 2.0
"""Seconds beyond its own time limits before a process counts as hanging."""
_INSIDE = Path(__file__).with_name("same_expression.py")


class NotReady(Exception):
    """Raised if a process ended before it was ready: a dependency is not installed, or there is not enough memory."""


@dataclass
class _Worker:
    """A process, and its pairs without a result."""

    process: subprocess.Popen[bytes]
    pending: deque[int] = field(default_factory=deque)
    ready: bool = False
    last_activity: float = field(default_factory=time.monotonic)
    """Time of its last output or request."""


class ExpressionWorkers:
    """Pool of as many processes as this one has cores, started when there is something to compare."""

    def __init__(self, seconds: int, count: int | None = None) -> None:
        """Initialise the pool without starting processes.

        Args:
            seconds: limit of each of the three parts of a comparison.
            count: number of processes; None: one per core.
        """
        self._seconds = seconds
        self._count = count or len(os.sched_getaffinity(0))
        self._workers: list[_Worker] = []

    def same(self, pairs: Sequence[Pair]) -> list[bool]:
        """Return which pairs are the same expression, [pairs]; equal pairs are compared once.

        Raises:
            NotReady: no process can be started.
        """
        distinct = list(dict.fromkeys(pairs))
        try:
            verdicts = dict(zip(distinct, self._compare(distinct), strict=True))
        except BaseException:  # also a reward's time limit: pending results must not be read for the next call
            self.close()
            raise
        return [verdicts[pair] for pair in pairs]

    def close(self) -> None:
        """End all processes."""
        while self._workers:
            _end(self._workers.pop())

    def _compare(self, pairs: Sequence[Pair]) -> list[bool]:
        verdicts = [False] * len(pairs)
        waiting, remaining = deque(range(len(pairs))), len(pairs)
        self._drop_ended()
        while remaining:
            while len(self._workers) < min(self._count, -(-remaining // BATCH)):
                self._workers.append(self._start_worker())
            for worker in self._workers:
                if waiting and not worker.pending:
                    self._ask(worker, [waiting.popleft() for _ in range(min(BATCH, len(waiting)))], pairs)
            for worker in self._listen():
                signs = os.read(worker.process.stdout.fileno(), 2 * BATCH) if worker.process.stdout else b""
                if not signs:
                    remaining -= self._replace_worker(worker, waiting)
                    continue
                worker.last_activity = time.monotonic()
                for sign in signs.decode():
                    if sign == "r":
                        worker.ready = True
                        continue
                    verdicts[worker.pending.popleft()] = sign == "1"
                    remaining -= 1
            for worker in [worker for worker in self._workers if self._hangs(worker)]:
                remaining -= self._replace_worker(worker, waiting)
        return verdicts

    def _drop_ended(self) -> None:
        """Remove processes that ended while idle, as all do with the thread that started them."""
        for worker in [worker for worker in self._workers if worker.process.poll() is not None]:
            self._workers.remove(worker)
            _end(worker)

    def _start_worker(self) -> _Worker:
        command = [sys.executable, "-P", str(_INSIDE), str(self._seconds)]
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        return _Worker(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing))

    def _ask(self, worker: _Worker, numbers: Sequence[int], pairs: Sequence[Pair]) -> None:
        worker.pending.extend(numbers)
        worker.last_activity = time.monotonic()
        assert worker.process.stdin is not None, "it was started with a pipe"
        try:
            worker.process.stdin.write(json.dumps([pairs[number] for number in numbers]).encode() + b"\n")
            worker.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, which is detected when it is read

    def _listen(self) -> list[_Worker]:
        """Return workers with output, or that have ended; waits for a moment."""
        with selectors.DefaultSelector() as selector:
            for worker in self._workers:
                if worker.process.stdout is not None and (worker.pending or not worker.ready):
                    selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
            return [key.data for key, _ in selector.select(0.5)]

    def _hangs(self, worker: _Worker) -> bool:
        limit = 3 * self._seconds + GRACE if worker.ready else START
        return bool(worker.pending) and time.monotonic() - worker.last_activity > limit

    def _replace_worker(self, worker: _Worker, waiting: deque[int]) -> int:
        """End a worker; returns the number of pairs that are given up, which is the one that it was comparing.

        Raises:
            NotReady: it was not even ready.
        """
        self._workers.remove(worker)
        _end(worker)
        if not worker.ready:
            raise NotReady("a process that compares expressions does not start: is math-verify installed?")
        given_up = 1 if worker.pending else 0
        waiting.extendleft(reversed(list(worker.pending)[given_up:]))
        return given_up


def _end(worker: _Worker) -> None:
    worker.process.kill()
    worker.process.wait()
    for pipe in (worker.process.stdin, worker.process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except BrokenPipeError:
                pass  # the part that was not written yet


def can_compare() -> bool:
    """Return whether math-verify is installed."""
    return find_spec("math_verify") is not None


@lru_cache(maxsize=4)
def shared_workers(seconds: int) -> ExpressionWorkers:
    """Return the processes that all rewards with these limits share; they end with this one."""
    workers = ExpressionWorkers(seconds)
    atexit.register(workers.close)
    return workers
