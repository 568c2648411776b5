"""The precision in which a step trains: that of the recipe or, with `auto`, the one chosen for this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch
from torch import nn

from models.learner.precision import autocast_of, chosen_precision, shape_of
from tasks.tracking import runs, tags

Precision = Literal["auto", "float32", "bfloat16"]


def learner_autocast(chosen: Precision, model: nn.Module, home: Path, run_id: str | None) -> torch.dtype | None:
    """Return the autocast dtype of `policy.precision` for `model` on this machine, None for plain float32.

    Args:
        chosen: float32, bfloat16 or auto.
        home: the state folder, which stores the measurements: the same model gets the same result.
        run_id: the run on which the choice is recorded; None if it was recorded before.
    """
    precision = chosen_precision(chosen, model, precision_folder(home))
    if run_id is not None:
        runs.set_tags(run_id, {tags.PRECISION: precision, tags.PRECISION_OF: shape_of(model)})
    return autocast_of(precision)


def precision_folder(home: Path) -> Path:
    """Return the folder of the choices of precision (models.learner.precision); it may be deleted at any time."""
    return home / "store" / "precision"
