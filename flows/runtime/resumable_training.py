"""Resumption of an interrupted training, or the record of why a training started from the beginning instead."""

from __future__ import annotations

from pathlib import Path

from prefect import get_run_logger

from flows.runtime.opening import FlowContext
from models.base.errors import UserError
from models.recipes.load import plain
from tasks.data.versions import DataVersion
from tasks.runner.results import RESULT
from tasks.state import cut_off
from tasks.tracking import runs

BEGINS_AGAIN = "begins again"
"""Key of the run's fact that explains why it started from the beginning instead of resuming."""


class ResumableTraining:
    """Comparison of the state folder's interrupted training with the one that starts now."""

    def __init__(self, opened: FlowContext, data: DataVersion, resume: bool) -> None:
        """Compare the training that starts with the interrupted one.

        Args:
            data: version of the data that the training reads.
            resume: whether to raise if the interrupted training cannot be resumed.

        Raises:
            UserError: `resume`, and the data or the code have changed.
        """
        self._opened, self._resume = opened, resume
        self._now = cut_off.unfinished_training(opened.run_id, data, runs.param_texts(plain(opened.recipe)))
        self._before = cut_off.unfinished(opened.home, opened.recipe.name)
        if self._before is not None and (self._before.data, self._before.code) != (self._now.data, self._now.code):
            self._anew(self._before)

    def begin(self, folder: Path) -> None:
        """Record that reinforcement learning starts, or resumes, in `folder`.

        Raises:
            UserError: `resume`, and there is nothing to resume.
        """
        home, name = self._opened.home, self._opened.recipe.name
        if self._before is not None and home / self._before.folder != folder:
            self._anew(self._before)
        elif self._before is None and self._resume and not (folder / RESULT).is_file():
            raise UserError(f"--resume: no training of {name} was cut off in {home}; leave it out to begin")
        cut_off.note(home, name, self._now, folder)

    def ended(self) -> None:
        """Record that the training is finished, so that there is nothing to resume."""
        cut_off.finished(self._opened.home, self._opened.recipe.name)

    def _anew(self, before: cut_off.Unfinished) -> None:
        if BEGINS_AGAIN in self._opened.facts:
            return
        rounds = before.rounds(self._opened.home)
        changed = "; ".join(before.changed_to(self._now)) or "what it is made from changed"
        was = f"the training that was cut off after round {rounds} has changed since: {changed}"
        if self._resume:
            raise UserError(f"--resume: {was}; undo the change, or leave --resume out to start again")
        self._opened.facts[BEGINS_AGAIN] = f"{was}; its checkpoints are kept: undo the change to resume"
        get_run_logger().warning(f"starts again: {self._opened.facts[BEGINS_AGAIN]}")
