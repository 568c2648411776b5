"""The mirror TensorBoard: event files in `mirrors/tensorboard/` of the state folder.

They are written with the classes of the package `tensorboard`, in this thread: its own writer has a thread that prints
a traceback when the disk is full. A resumed run writes a new file in the same folder, with a mark of a restart at step
0 (SummaryWriter's `purge_step`) and all rows of the journal: TensorBoard then drops the earlier points and shows every
point once, also those that were lost when the process was killed.
"""

from __future__ import annotations

import os
import socket
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.tracking.mirrors.mirror import MirrorRow, Place, number_or_text


class TensorBoardRun:
    """A folder of event files."""

    def __init__(self, place: Place, folder: Path) -> None:
        """Open a new event file.

        Args:
            place: place of the run.
            folder: the mirror's folder.
        """
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._trial, self._restarts = place.name, place.resumed
        self._facts: list[Any] = []
        self._hparams: dict[str, float | str] = {}
        run_folder = folder / place.path
        run_folder.mkdir(parents=True, exist_ok=True)
        # TensorBoard reads the files of a folder in the order of their names.
        file = run_folder / f"events.out.tfevents.{time.time_ns():020d}.{socket.gethostname()}.{os.getpid()}"
        self._handle = file.open("xb")
        self._records = RecordWriter(self._handle)
        self._write(file_version="brain.Event:2")

    def params(self, params: Mapping[str, str]) -> None:
        """Add hyperparameters."""
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb

        self._hparams |= {key: number_or_text(text) for key, text in params.items()}
        self._fact(hparams_pb(self._hparams, trial_id=self._trial))

    def tags(self, run_tags: Mapping[str, str]) -> None:
        """Add a text for each tag; a description keeps its Markdown."""
        for key, value in run_tags.items():
            self._text(f"tags/{key}", value)

    def text(self, name: str, text: str) -> None:
        """Add a text as a block of code."""
        self._text(name, textwrap.indent(text, "    ", lambda line: True))

    def row(self, row: MirrorRow) -> None:
        """Add scalars; row 0 of a run that has rows already makes TensorBoard drop what it has."""
        from tensorboard.compat.proto.event_pb2 import SessionLog

        if row.position == 0 and self._restarts:
            self._write(step=0, session_log=SessionLog(status=SessionLog.START))
            for summary in self._facts:
                self._write(summary=summary)
        self._restarts = True
        self._scalars(row.step, row.timestamp, row.metrics)

    def final(self, step: int, timestamp: int, metrics: Mapping[str, float]) -> None:
        """Add scalars."""
        self._scalars(step, timestamp, metrics)

    def flush(self) -> None:
        """Write the file's buffer."""
        self._records.flush()

    def close(self, finished: bool) -> None:
        """Close the file."""
        self._handle.close()

    def _scalars(self, step: int, timestamp: int, metrics: Mapping[str, float]) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        if metrics:
            values = [Summary.Value(tag=key, simple_value=value) for key, value in metrics.items()]
            self._write(wall_time=timestamp / 1000, step=step, summary=Summary(value=values))

    def _text(self, name: str, text: str) -> None:
        from tensorboard.plugins.text.summary_v2 import text_pb

        self._fact(text_pb(name, text))

    def _fact(self, summary: Any) -> None:
        self._facts.append(summary)
        self._write(summary=summary)

    def _write(self, **fields: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._records.write(Event(**({"wall_time": time.time()} | fields)).SerializeToString())
