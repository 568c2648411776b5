"""The precision that a step learns in: the recipe's, or what is faster on this machine; recorded on its run."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch
from torch import nn

from models.learner.precision import autocast_of, chosen_precision, shape_of
from tasks.tracking import runs, tags

Precision = Literal["auto", "float32", "bfloat16"]


def learner_autocast(chosen: Precision, model: nn.Module, home: Path, run_id: str | None) -> torch.dtype | None:
    """The autocast dtype that `policy.precision` means for `model` here, None for plain float32.

    Args:
        chosen: float32, bfloat16 or auto.
        home: the state folder, which keeps what was measured: the same model gets the same answer.
        run_id: the run that is told; None where the choice was recorded before.
    """
    precision = chosen_precision(chosen, model, precision_folder(home))
    if run_id is not None:
        runs.set_tags(run_id, {tags.PRECISION: precision, tags.PRECISION_OF: shape_of(model)})
    return autocast_of(precision)


def precision_folder(home: Path) -> Path:
    """Folder of what was measured (models.learner.precision); it may be deleted at any time."""
    return home / "store" / "precision"
