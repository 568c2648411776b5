"""Equivalence of two formulas, decided by a solver in a process of its own that can be ended at any moment.

Two formulas are equivalent if no model makes one true and the other false: z3 is asked for such a model. First-order
logic is not decidable, so the solver may give up: after a limit of its own steps, which does not depend on the clock,
or, if even that takes too long, because its process is ended. Formulas that are not shown to be equivalent count as
different.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from models.answers.logic import Tree
from models.base.errors import UserError

STEPS = 400_000
"""Limit of the solver's steps per pair (its resource limit); a tenth of a second or a few."""
_START = 60.0
"""Seconds that the process may take to start, beyond those of its first pair."""
_READY = "ready"


class Prover:
    """A process with a solver; a new one if the last was ended. It serves one thread at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str] = queue.Queue()
        self._lock = threading.Lock()

    def equivalent(self, pairs: Sequence[tuple[Tree, Tree]], seconds: float) -> list[bool]:
        """Return which pairs are shown to be equivalent, [pairs].

        Args:
            pairs: two formulas each.
            seconds: wall time after which the process is ended; the current pair then counts as not equivalent.

        Raises:
            UserError: the solver cannot be started.
        """
        with self._lock:
            try:
                return [self._ask(pair, seconds) for pair in pairs]
            except BaseException:  # also a reward's time limit: a pending answer must not be read for the next pair
                self.close()
                raise

    def start(self) -> None:
        """Start the process, if none runs; raises as `equivalent` does."""
        if self._process is not None and self._process.poll() is None:
            return
        self._lines = queue.Queue()
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("solver_process.py")), str(STEPS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd="/",
        )
        threading.Thread(target=_read, args=(self._process, self._lines), daemon=True).start()
        if self._line(_START) != _READY:
            self.close()
            raise UserError("the solver z3 cannot be started; install z3-solver, as the lock file has it")

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def _ask(self, pair: tuple[Tree, Tree], seconds: float) -> bool:
        self.start()
        assert self._process is not None and self._process.stdin is not None
        try:
            print(json.dumps(pair), file=self._process.stdin, flush=True)
        except OSError:
            self.close()
            return False
        line = self._line(seconds)
        if line is None:
            self.close()
        return line == "yes"

    def _line(self, seconds: float) -> str | None:
        """Return the next line; None if none came in time, or the process has ended."""
        try:
            return self._lines.get(timeout=seconds).strip() or None
        except queue.Empty:
            return None


def _read(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    lines.put("")


def shared_prover() -> Prover:
    """Return the solver of this process, shared by all callers; it ends with the process."""
    return _prover_of(os.getpid())


@cache
def _prover_of(process: int) -> Prover:
    prover = Prover()
    atexit.register(prover.close)
    return prover
