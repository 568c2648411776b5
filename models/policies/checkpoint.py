"""Checkpoints from which a killed run resumes as if it had not been interrupted.

A checkpoint is a folder `round_000040/` with tensors in safetensors and a `state.json` that names the round and
the hash of every file. It is written to a temporary folder, synced and renamed, so a kill at any moment leaves it whole
or absent. A checkpoint whose hashes, files or round do not match is skipped, and the one before is used.

If a model is split over several ranks, each writes its parts, `policy.2of4.safetensors` instead of
`policy.safetensors`, into a shared folder. Any number of ranks can resume from it.
"""

from __future__ import annotations

import json
import re
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor, nn

from models.base.atomic_write import sweep
from models.base.file_hash import sha256_of
from models.base.ranks import ALONE, Ranks, cut_like
from models.learner.eight_bit import plain_parts, put_together
from models.policies.checkpoint_parts import parts_of, read_parts, write_parts

STATE = "state.json"
BEST = "best"
"""Folder next to the checkpoints with the best policy so far."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk whose files and hashes have been checked."""

    folder: Path
    round_number: int
    """Rounds that were finished when it was written."""
    updates: dict[str, int]
    """Optimiser steps of each model, by its name."""

    def read(self, name: str) -> bytes:
        """Read the file `name` that is stored next to the tensors."""
        return (self.folder / name).read_bytes()


def state_of(
    modules: Mapping[str, nn.Module], optimisers: Mapping[str, torch.optim.Optimizer], ranks: Ranks = ALONE
) -> dict[str, dict[str, Tensor]]:
    """Return the tensors of a checkpoint by file name, not copied; of split tensors only this rank's parts.

    Args:
        modules: models that learn or move, by name; only parameters that could change need to be in it.
        optimisers: optimisers of the models that learn, by the same names; their moments are included.
        ranks: owners of the parts; tensors that are not split are kept by the first rank only.
    """
    state = {name: trainable(module) for name, module in modules.items()}
    state |= {f"{name}.optimiser": _flatten(optimiser) for name, optimiser in optimisers.items()}
    return {name: parts_of(tensors, ranks) for name, tensors in state.items()}


def _flatten(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    state: dict[int, dict[str, Tensor]] = optimiser.state_dict()["state"]
    return {
        f"{index}.{part}": tensor
        for index, entry in state.items()
        for name, moment in entry.items()
        for part, tensor in plain_parts(name, moment)
    }


def write_checkpoint(
    root: Path,
    round_number: int,
    state: Mapping[str, Mapping[str, Tensor]],
    updates: Mapping[str, int],
    files: Mapping[str, bytes] = MappingProxyType({}),
    keep: int = 2,
    ranks: Ranks = ALONE,
) -> Path:
    """Write a checkpoint after `round_number` rounds, and delete all but the newest `keep`.

    Args:
        root: folder of all checkpoints of one training.
        round_number: rounds finished.
        state: tensors by the name of their file, as returned by `state_of`.
        updates: optimiser steps that each model has taken.
        files: contents of other files of the checkpoint, by name.
        keep: number of checkpoints that stay.
        ranks: ranks that write, each the parts in its own `state`.

    Raises:
        UserError: no space left; the older checkpoints are untouched.
    """

    target = root / _name_of(round_number)

    def complete(folder: Path, hashes: dict[str, str]) -> None:
        for name, content in files.items():
            (folder / name).write_bytes(content)
            hashes[name] = sha256_of(folder / name)
        (folder / STATE).write_text(
            json.dumps({"round": round_number, "updates": dict(updates), "sha256": dict(sorted(hashes.items()))})
        )

    def remove_others() -> None:
        checkpoints = [folder for folder in reversed(_by_round(root)) if _round_of(folder) is not None]
        here = checkpoints.index(target)
        # Later checkpoints were broken, or this training would have resumed from them.
        for old in checkpoints[: max(0, here + 1 - keep)] + checkpoints[here + 1 :]:
            shutil.rmtree(old)

    ranks.from_first(lambda: sweep(root))
    write_parts(target, state, complete, ranks)
    ranks.from_first(remove_others)
    return target


def newest_checkpoint(root: Path) -> Checkpoint | None:
    """Return the newest complete checkpoint; broken ones are skipped with a warning."""
    for folder in _by_round(root):
        faults: list[str] = []
        try:
            state = json.loads((folder / STATE).read_text())
            number, hashes, updates = state["round"], dict(state["sha256"]), dict(state["updates"])
            if not hashes or not all(type(count) is int for count in (number, *updates.values())):
                raise ValueError("it is incomplete")
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            faults = [f"{STATE} is broken"]
        else:
            if folder.name != _name_of(number):
                faults = [f"{STATE} is that of round {number}"]
            faults += _faults(folder, hashes)
        if not faults:
            return Checkpoint(folder, number, updates)
        warnings.warn(f"{folder}: {', '.join(faults)}; going back to the checkpoint before", stacklevel=2)
    return None


def load_checkpoint(
    checkpoint: Checkpoint, modules: Mapping[str, nn.Module], optimisers: Mapping[str, torch.optim.Optimizer]
) -> None:
    """Load the state of `checkpoint` into modules and optimisers, in place."""
    for name, module in modules.items():
        own = dict(module.named_parameters())
        with torch.no_grad():
            for key, value in read_parts(checkpoint.folder, name):
                own[key].copy_(cut_like(value, own[key]))
    for name, optimiser in optimisers.items():
        state: dict[int, dict[str, Tensor]] = {}
        moved = [parameter for group in optimiser.param_groups for parameter in group["params"]]
        for key, value in read_parts(checkpoint.folder, f"{name}.optimiser"):
            index, moment = key.split(".", 1)
            weight = moved[int(index)]
            state.setdefault(int(index), {})[moment] = cut_like(value, weight) if value.ndim else value
        moments = {index: put_together(parts) for index, parts in state.items()}
        optimiser.load_state_dict({"state": moments, "param_groups": optimiser.state_dict()["param_groups"]})


def keep_best(root: Path, weights: Mapping[str, Tensor], ranks: Ranks = ALONE) -> None:
    """Write `weights` as the best ones so far, next to the checkpoints, replacing those stored before.

    Args:
        root: folder of all checkpoints of one training.
        weights: the policy's weights that can change; with several ranks the parts of each.
        ranks: ranks that write.

    Raises:
        UserError: no space left; the weights stored before are untouched.
    """
    write_parts(root / BEST, {"policy": weights}, lambda folder, hashes: None, ranks)


def restore_best(root: Path, policy: nn.Module) -> None:
    """Load the stored best weights into `policy`, in place."""
    own = dict(policy.named_parameters())
    with torch.no_grad():
        for key, value in read_parts(root / BEST, "policy"):
            own[key].copy_(cut_like(value, own[key]))


def trainable(module: nn.Module) -> dict[str, Tensor]:
    """Return the trainable parameters; if there are none, all parameters (a reference that moves by itself)."""
    named = dict(module.named_parameters())
    learning: dict[str, Tensor] = {name: value for name, value in named.items() if value.requires_grad}
    return learning or dict(named)


def _name_of(round_number: int) -> str:
    return f"round_{round_number:06d}"


def _round_of(folder: Path) -> int | None:
    """Return the round in a folder's name; None for any other name."""
    digits = re.fullmatch(r"round_([0-9]+)", folder.name)
    number = int(digits[1]) if digits else 0
    return number if digits and folder.name == _name_of(number) else None


def _by_round(root: Path) -> list[Path]:
    """Return possible checkpoints, the newest first; names without a round come before all others."""
    numbered = [(_round_of(folder), folder) for folder in root.glob("round_*")]
    numbered.sort(key=lambda each: (each[0] is None, each[0] or 0, each[1].name), reverse=True)
    return [folder for _, folder in numbered]


def _faults(folder: Path, hashes: Mapping[str, str]) -> list[str]:
    """Return the faults in the files of a checkpoint, whose names and hashes must be exactly those of `hashes`."""
    there = {file.name for file in folder.iterdir() if not file.name.startswith(".")} - {STATE}
    faults = [
        _fault(folder / name, digest) if name in there else f"{name} is missing" for name, digest in hashes.items()
    ]
    faults += [f"{name} is not named in {STATE}" for name in sorted(there - hashes.keys())]
    return [fault for fault in faults if fault]


def _fault(file: Path, digest: str) -> str:
    """Return the fault of a file that should have the hash `digest`; "" if there is none."""
    try:
        return "" if sha256_of(file) == digest else f"{file.name} is broken"
    except OSError as error:
        return f"{file.name} cannot be read ({error.strerror})"
