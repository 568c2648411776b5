"""The mirror Trackio: its local database, in `mirrors/trackio/` of the state folder or in TRACKIO_DIR.

Rows are written by the function that Trackio's own importers use: it writes at once, raises what fails, and takes the
time of a row. `trackio.init` would print, collect system metrics, and report a failed write as a Python warning only.
Nothing is sent: `trackio sync` uploads a project when the user wants it.

Each row has an id made of the run's and its position. Trackio ignores a row whose id it has, so a resumed run adds none
twice.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from tasks.tracking.mirrors.mirror import MirrorRow, Place, plain


class _TrackioRow(NamedTuple):
    step: int
    timestamp: int
    metrics: Mapping[str, float]
    row_id: str | None
    """None: the row is added each time."""


class TrackioRun:
    """A run of Trackio."""

    def __init__(self, place: Place, folder: Path) -> None:
        """Open the database of the project.

        Args:
            place: place of the run.
            folder: the mirror's folder.
        """
        os.environ.setdefault("TRACKIO_DIR", str(folder))  # Trackio reads it when it is imported
        from trackio.sqlite_storage import SQLiteStorage

        self._bulk_log: Any = SQLiteStorage.bulk_log
        self._place = place
        self._config: dict[str, Any] = {"_Group": place.group, "_Created": datetime.now(UTC).isoformat()}
        self._unwritten = False
        self._rows: list[_TrackioRow] = []

    def params(self, params: Mapping[str, str]) -> None:
        """Add params to the config, which is written with the next row."""
        self._config |= params
        self._unwritten = True

    def tags(self, run_tags: Mapping[str, str]) -> None:
        """Add tags to the config, below `tags`."""
        self._config["tags"] = {**self._config.get("tags", {}), **run_tags}
        self._unwritten = True

    def text(self, name: str, text: str) -> None:
        """Add a text to the config, below `texts`."""
        self._config["texts"] = {**self._config.get("texts", {}), name: text}
        self._unwritten = True

    def row(self, row: MirrorRow) -> None:
        """Add a row, unless the database has it."""
        self._rows.append(_TrackioRow(row.step, row.timestamp, row.metrics, f"{self._place.run_id}-{row.position}"))

    def final(self, step: int, timestamp: int, metrics: Mapping[str, float]) -> None:
        """Add a row."""
        self._rows.append(_TrackioRow(step, timestamp, metrics, None))

    def flush(self) -> None:
        """Write the rows that wait, in one transaction."""
        if not self._rows:
            return
        self._bulk_log(
            project=plain(self._place.project),
            run=self._place.name,
            run_id=self._place.run_id,
            metrics_list=[dict(row.metrics) for row in self._rows],
            steps=[row.step for row in self._rows],
            timestamps=[datetime.fromtimestamp(row.timestamp / 1000, UTC).isoformat() for row in self._rows],
            config=self._config,
            log_ids=[row.row_id for row in self._rows],
        )
        self._rows, self._unwritten = [], False

    def close(self, finished: bool) -> None:
        """Write what the config got after the last row; Trackio takes it only with a row, which has no metrics then."""
        if self._unwritten and not self._rows:
            now = int(datetime.now(UTC).timestamp() * 1000)
            self._rows.append(_TrackioRow(0, now, {}, f"{self._place.run_id}-config"))
        self.flush()
