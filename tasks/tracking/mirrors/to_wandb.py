"""The mirror Weights & Biases: one W&B run for each MLflow run, in one group for each flow.

Server, login, project and entity are those of W&B's own variables: WANDB_MODE, WANDB_BASE_URL, WANDB_API_KEY,
WANDB_PROJECT (default: the recipe's name), WANDB_ENTITY. Only what MLflow has is written: W&B's own collection of
source code, git state, console output, packages, command line and system metrics is off.

A resumed run has the same id. Online, W&B cannot take a point back: rows that the server already has are left out.
Offline, W&B begins a new folder, and all rows of the journal are written to it. The folder of the interrupted run,
which lacks rows if its process was killed, is deleted unless it was synchronised.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.tracking.mirrors.mirror import MirrorRow, Place, plain

SECONDS = 10.0
"""Time limit for the first connection to the server, and for the last upload of a run, seconds. What was not uploaded
stays on the disk."""
NOTE = "mlflow.note.content"
"""MLflow's tag that holds the description; it becomes W&B's notes."""


class WandbRun:
    """A run of W&B."""

    def __init__(self, place: Place, folder: Path) -> None:
        """Begin the run, or continue it by its id.

        Args:
            place: place of the run.
            folder: the mirror's folder: `wandb/` in it is W&B's.
        """
        # W&B reads these when it is imported. Silent: it never asks for a login in a terminal.
        os.environ.setdefault("WANDB_SILENT", "true")
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        folder.mkdir(parents=True, exist_ok=True)
        settings = wandb.Settings(
            silent=True,
            console="off",
            save_code=False,
            disable_code=True,
            disable_git=True,
            disable_job_creation=True,
            symlink=False,
            init_timeout=SECONDS,
            finish_timeout=SECONDS,
            finish_timeout_raises=True,
            x_disable_meta=True,
            x_disable_stats=True,
            x_disable_machine_info=True,
            x_save_requirements=False,
        )
        base = Path(os.environ.get("WANDB_DIR") or folder)
        offline = os.environ.get("WANDB_MODE") in ("offline", "dryrun")  # W&B warns of `resume` then, and ignores it
        if place.resumed and offline:
            _delete_unsynchronised(base / "wandb", place.run_id)
        # W&B replaces both to learn the exit status; the tracking closes the run with its status.
        hooks = {name: getattr(sys, name) for name in ("exit", "excepthook")}
        try:
            self._run: Any = wandb.init(
                project=os.environ.get("WANDB_PROJECT") or plain(place.project),
                id=place.run_id,
                name=place.name,
                group=place.group,
                job_type=place.step or "flow",
                dir=str(base),
                resume=None if offline else "allow",
                reinit="create_new",
                settings=settings,
            )
        finally:
            for name, hook in hooks.items():
                setattr(sys, name, hook)
        self._run.define_metric("*", step_metric="step")
        self._curves: set[str] = set()
        self._number = -1
        self._known = int(self._run.starting_step) - 1

    def params(self, params: Mapping[str, str]) -> None:
        """Add params to the config."""
        self._run.config.update(dict(params), allow_val_change=True)

    def tags(self, run_tags: Mapping[str, str]) -> None:
        """Add tags to the config, below `tags`; the description becomes the notes."""
        if NOTE in run_tags:
            self._run.notes = run_tags[NOTE]
        rest = {key: value for key, value in run_tags.items() if key != NOTE}
        if rest:
            self._run.config.update({"tags": {**self._run.config.get("tags", {}), **rest}}, allow_val_change=True)

    def text(self, name: str, text: str) -> None:
        """Add a text to the config, below `texts`."""
        texts = {**self._run.config.get("texts", {}), name: text}
        self._run.config.update({"texts": texts}, allow_val_change=True)

    def row(self, row: MirrorRow) -> None:
        """Add a row to the history, unless W&B has it. `step` is the axis of all charts.

        W&B's own number of a row is the step too, unless the steps begin again with a second curve: this number must
        rise.
        """
        self._curves.update(row.metrics)
        self._number = max(row.step, 0 if row.position == 0 else self._number + 1)
        if self._number > self._known:
            values = {**row.metrics, "step": row.step, "_timestamp": row.timestamp / 1000}
            self._run.log(values, step=self._number)
            self._known = self._number

    def final(self, step: int, timestamp: int, metrics: Mapping[str, float]) -> None:
        """Add metrics to the summary; of a curve, the summary already has the last value."""
        self._run.summary.update({key: value for key, value in metrics.items() if key not in self._curves})

    def flush(self) -> None:
        """Do nothing: W&B sends by itself."""

    def close(self, finished: bool) -> None:
        """End the run, and send what the server does not have yet."""
        self._run.finish(exit_code=0 if finished else 1)


def _delete_unsynchronised(folder: Path, run_id: str) -> None:
    for earlier in folder.glob(f"offline-run-*-{run_id}"):
        if not any(earlier.glob("*.synced")):
            shutil.rmtree(earlier)
