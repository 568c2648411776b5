"""Curves that survive an outage: metrics are journalled, buffered, and sent in batches from a separate thread.

The caller never waits for the tracking server. While the server is unreachable the buffer grows and sending is retried
with growing pauses. Timestamps are taken when a value is logged, so that sending one twice changes nothing. `close`
waits for the last values up to a limit; values that are still unsent remain in the journal.
"""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from models.base.disk import needs_space, no_space, out_of_space
from models.base.errors import UserError
from tasks.runner import interrupt
from tasks.tracking import store
from tasks.tracking.journal import JournalRow, line_of, read_journal, write_journal
from tasks.tracking.mirrors import mirrored

if TYPE_CHECKING:
    from mlflow.entities import Metric

_LOG = logging.getLogger("rewardflow.tracking")

MOST_KEYS = 60
"""Maximum number of metric keys of one run: MLflow's run page becomes very slow with about 100 charts."""
MOST_A_CALL = 1000
"""Maximum number of metrics in one request to MLflow."""


def clean_key(key: str) -> str:
    """Return a key that MLflow accepts: `pass@1` becomes `pass_at_1`, other refused characters `_`, doubled `/` one.

    Raises:
        UserError: nothing is left of the key.
    """
    cleaned = re.sub(r"[^\w\-. :/]", "_", key.replace("@", "_at_"), flags=re.ASCII)
    parts = [part for part in cleaned.split("/") if part.strip(". ")]
    if not parts:
        raise UserError(f"metric key {key!r} has no letter or digit that MLflow takes")
    return "/".join(parts)[:250]


@dataclass(frozen=True)
class Delivery:
    """Result of sending the metrics of a run."""

    sent: int
    """Values that the tracking server has."""
    unsent: int
    """Values that the server did not accept before the limit; they are in the journal."""
    not_finite: int
    """Values that were NaN or infinite and were not logged."""


class MetricLog:
    """A log of one run's metrics: `log(step, {"reward/mean": 0.3})` journals them and sends them from a thread.

    It is callable, so that it can be passed to models/. Use it in a `with` statement; the end of the block waits for
    the last values.
    """

    def __init__(
        self, run_id: str, journal: Path | None = None, *, every_seconds: float = 5.0, every_values: int = MOST_A_CALL
    ) -> None:
        """Start the sending thread.

        Args:
            run_id: MLflow run that receives the values.
            journal: JSONL file that receives them first; appended to if it exists (see `replay`).
            every_seconds: longest time that a value waits in the buffer, in seconds.
            every_values: number of values that are sent at once without waiting.
        """
        self._run_id, self._journal = run_id, journal
        self._every_seconds, self._every_values = every_seconds, every_values
        self._keys: dict[str, str] = {}
        self._waiting: deque[Metric] = deque()
        self._sent = self._not_finite = 0
        self._error: Exception | None = None
        self._flush_requested = False
        self._send_at = 0.0
        self._closed = threading.Event()
        self._changed = threading.Condition()
        if journal is not None:
            journal.parent.mkdir(parents=True, exist_ok=True)
            if journal.is_file():  # drops a torn last line, so that the next one starts on its own
                write_journal(journal, read_journal(journal))
        self._handle = journal.open("a", encoding="utf-8") if journal is not None else None
        mirrored.begin_curves(run_id, journal)
        self._thread = threading.Thread(target=self._send_all, name=f"metrics-{run_id[:8]}", daemon=True)
        self._thread.start()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log `metrics` at `step` and return at once.

        Raises:
            UserError: the run has more than MOST_KEYS keys, two keys are equal in MLflow, or the
                tracking server refused earlier values permanently (the run was deleted, access was lost).
        """
        finite = {key: float(value) for key, value in metrics.items() if math.isfinite(value)}
        row = JournalRow(int(step), int(time.time() * 1000), finite)
        with self._changed:
            if self._error is not None:
                raise self._refusal_of(self._error) from self._error
            self._check_keys(metrics)
            self._not_finite += len(metrics) - len(finite)
            if self._journal is not None and self._handle is not None and finite:
                with needs_space(self._journal):
                    self._handle.write(line_of(row))
                    self._handle.flush()
            self._buffer(row)

    __call__ = log

    def replay(self, up_to_step: int) -> int:
        """Send the journal's rows up to and including `up_to_step` to a resumed run, with their timestamps.

        Later rows are dropped from the journal: the resumed run repeats those steps. Returns the number of rows logged.
        """
        if self._journal is None or self._handle is None:
            raise ValueError("a metric log without a journal has nothing to replay")
        with self._changed:
            rows = [row for row in read_journal(self._journal) if row.step <= up_to_step]
            self._handle.close()
            write_journal(self._journal, rows)
            self._handle = self._journal.open("a", encoding="utf-8")
            mirrored.repeat_curves(self._run_id)
            for row in rows:
                self._check_keys(row.metrics)
                self._buffer(row)
        return len(rows)

    def flush(self, limit: float = 60.0) -> int:
        """Send the waiting values now, for up to `limit` seconds. Return how many values are still unsent."""
        deadline = time.monotonic() + limit
        with self._changed:
            self._flush_requested = True
            self._changed.notify_all()
            while self._waiting and self._error is None and self._thread.is_alive():
                if not self._changed.wait(max(0.0, deadline - time.monotonic())) and time.monotonic() >= deadline:
                    break
            return len(self._waiting)

    def close(self, limit: float = store.PATIENCE) -> Delivery:
        """Send the last values, waiting up to `limit` seconds for an unreachable server; then end the thread."""
        unsent = self.flush(limit)
        with self._changed:
            self._closed.set()
            self._changed.notify_all()
            if self._journal is not None and self._handle is not None:
                handle, self._handle = self._handle, None
                with needs_space(self._journal):
                    handle.close()
        if not unsent:
            self._thread.join(timeout=30)
        if (unsent and not (self._error and out_of_space(self._error))) or self._not_finite:
            journal_text = self._journal or "no journal was kept"
            _LOG.warning(
                "run %s: %d metric values not sent (%s), %d not finite",
                self._run_id,
                unsent,
                journal_text,
                self._not_finite,
            )
        if self._error is not None:
            raise self._refusal_of(self._error) from self._error
        return Delivery(self._sent, unsent, self._not_finite)

    def __enter__(self) -> MetricLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:  # the first error matters more; an unreachable server must not delay it for long
            try:
                self.close(limit=2.0 if interrupt.received_signal() or out_of_space(error) else 15.0)
            except UserError as close_error:
                if not out_of_space(error):
                    _LOG.warning("%s", close_error)

    def _refusal_of(self, error: Exception) -> UserError:
        if out_of_space(error):
            return no_space(store.current().home)
        return UserError(f"run {self._run_id} takes no metrics: {error}")

    def _check_keys(self, metrics: Mapping[str, float]) -> None:
        for key in metrics:
            clean = clean_key(key)
            other_key = self._keys.get(clean)
            if other_key is None:
                if len(self._keys) >= MOST_KEYS:
                    raise UserError(
                        f"metric {key!r} would be key number {MOST_KEYS + 1} of run {self._run_id}: "
                        f"at most {MOST_KEYS}, more and the run page of MLflow cannot be used"
                    )
                self._keys[clean] = key
            elif other_key != key:
                raise UserError(f"metrics {other_key!r} and {key!r} are both {clean!r} in MLflow: rename one")

    def _buffer(self, row: JournalRow) -> None:
        from mlflow.entities import Metric

        if not self._waiting:
            self._send_at = time.monotonic() + self._every_seconds
        values = {clean_key(key): value for key, value in row.metrics.items()}
        self._waiting.extend(Metric(key, value, row.timestamp, row.step) for key, value in values.items())
        mirrored.add_row(self._run_id, row.step, row.timestamp, values)
        self._changed.notify_all()

    def _next_batch(self) -> list[Metric]:
        """Wait until values are due, then return them without removing them; return none when the log is closed."""
        with self._changed:
            while not self._closed.is_set():
                if not self._waiting:
                    self._flush_requested = False
                    self._changed.wait()
                elif (
                    self._flush_requested
                    or len(self._waiting) >= self._every_values
                    or time.monotonic() >= self._send_at
                ):
                    return list(islice(self._waiting, MOST_A_CALL))
                else:
                    self._changed.wait(self._send_at - time.monotonic())
            return []

    def _send_all(self) -> None:
        pause = 0.5
        while batch := self._next_batch():
            try:
                store.client().log_batch(self._run_id, metrics=batch)
            except Exception as error:
                if not store.is_passing(error):
                    with self._changed:
                        self._error = error
                        self._changed.notify_all()
                    return
                _LOG.warning("tracking server is away: %d metric values wait", len(self._waiting))
                self._closed.wait(pause)
                pause = min(pause * 2, 5.0)
                continue
            pause = 0.5
            with self._changed:
                for _ in batch:
                    self._waiting.popleft()
                self._sent += len(batch)
                self._send_at = time.monotonic() + self._every_seconds
                self._changed.notify_all()
