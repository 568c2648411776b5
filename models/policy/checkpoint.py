"""Checkpoints from which a killed run goes on as if nothing had happened.

A checkpoint is a folder `round_000040/` with tensors in safetensors and a `state.json` that names the round and
the hash of every file. It is written beside, synced and renamed, so a kill at any moment leaves it whole or
absent; one whose hashes do not fit is passed over for the one before.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from models.atomic_write import replace_folder, sweep

BEST = "best"
"""Folder beside the checkpoints that holds the best policy so far."""


@dataclass(frozen=True)
class Checkpoint:
    """One that was found whole."""

    folder: Path
    round_number: int
    """Rounds that were finished when it was written."""
    updates: dict[str, int]
    """Optimiser steps that each model had taken, by its name."""

    def read(self, name: str) -> bytes:
        """What the file called `name` holds, which was kept beside the tensors."""
        return (self.folder / name).read_bytes()


def state_of(
    modules: Mapping[str, nn.Module], optimisers: Mapping[str, torch.optim.Optimizer]
) -> dict[str, dict[str, Tensor]]:
    """All tensors of a checkpoint by the name of their file, not copied.

    Args:
        modules: what learns or moves, by name; only parameters that could change need to be in it.
        optimisers: of the models that learn, by the same names; their moments are kept too.
    """
    state = {name: trainable(module) for name, module in modules.items()}
    return state | {f"{name}.optimiser": _flatten(optimiser) for name, optimiser in optimisers.items()}


def _flatten(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    state: dict[int, dict[str, Tensor]] = optimiser.state_dict()["state"]
    return {f"{index}.{name}": tensor for index, entry in state.items() for name, tensor in entry.items()}


def write_checkpoint(
    root: Path,
    round_number: int,
    state: Mapping[str, Mapping[str, Tensor]],
    updates: Mapping[str, int],
    files: Mapping[str, bytes] = MappingProxyType({}),
    keep: int = 2,
) -> Path:
    """Write the state after `round_number` rounds; only the newest `keep` stay.

    Args:
        root: folder of all checkpoints of one training.
        round_number: rounds finished.
        state: tensors by the name of their file, as `state_of` gives them.
        updates: optimiser steps that each model has taken.
        files: what else is to be kept, by the names of its files.
        keep: how many checkpoints stay.

    Raises:
        UserError: no space left; the older checkpoints are untouched.
    """

    target = root / f"round_{round_number:06d}"
    sweep(root)
    with replace_folder(target) as folder:
        for name, tensors in state.items():
            save_file(_storable(tensors), folder / f"{name}.safetensors")
        for name, content in files.items():
            (folder / name).write_bytes(content)
        hashes = {file.name: _sha256(file) for file in sorted(folder.iterdir())}
        (folder / "state.json").write_text(
            json.dumps({"round": round_number, "updates": dict(updates), "sha256": hashes})
        )
    checkpoints = sorted(root.glob("round_*"))
    here = checkpoints.index(target)
    # What lies ahead was broken, or this training would have gone on from there.
    for old in checkpoints[: max(0, here + 1 - keep)] + checkpoints[here + 1 :]:
        shutil.rmtree(old)
    return target


def _storable(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as safetensors takes them: on the processor, each in one piece."""
    return {key: value.detach().cpu().contiguous() for key, value in tensors.items()}


def newest_checkpoint(root: Path) -> Checkpoint | None:
    """The newest checkpoint that is whole; broken ones are passed over with a warning."""
    for folder in sorted(root.glob("round_*"), reverse=True):
        try:
            state: dict[str, Any] = json.loads((folder / "state.json").read_text())
            number, hashes, updates = int(state["round"]), dict(state["sha256"]), dict(state["updates"])
        except (OSError, ValueError, KeyError, TypeError):
            faults = ["state.json is broken"]
        else:
            faults = [fault for name, digest in hashes.items() if (fault := _fault(folder / name, digest))]
        if not faults:
            return Checkpoint(folder, number, updates)
        warnings.warn(f"{folder}: {', '.join(faults)}; going back to the checkpoint before", stacklevel=2)
    return None


def load_checkpoint(
    checkpoint: Checkpoint, modules: Mapping[str, nn.Module], optimisers: Mapping[str, torch.optim.Optimizer]
) -> None:
    """Put modules and optimisers into the state of `checkpoint`, in place."""
    for name, module in modules.items():
        own = dict(module.named_parameters())
        with torch.no_grad():
            for key, value in load_file(checkpoint.folder / f"{name}.safetensors").items():
                own[key].copy_(value)
    for name, optimiser in optimisers.items():
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in load_file(checkpoint.folder / f"{name}.optimiser.safetensors").items():
            index, moment = key.split(".", 1)
            state.setdefault(int(index), {})[moment] = value
        optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


def keep_best(root: Path, weights: Mapping[str, Tensor]) -> None:
    """Keep `weights`, by name, beside the checkpoints, in place of those kept before.

    Raises:
        UserError: no space left; those kept before are untouched.
    """

    with replace_folder(root / BEST) as folder:
        save_file(_storable(weights), folder / "policy.safetensors")


def restore_best(root: Path, policy: nn.Module) -> None:
    """Give `policy` the weights that were kept, in place."""
    own = dict(policy.named_parameters())
    with torch.no_grad():
        for key, value in load_file(root / BEST / "policy.safetensors").items():
            own[key].copy_(value)


def trainable(module: nn.Module) -> dict[str, Tensor]:
    """Parameters that can change; all of them where none is trainable (a reference that moves by itself)."""
    named = dict(module.named_parameters())
    learning: dict[str, Tensor] = {name: value for name, value in named.items() if value.requires_grad}
    return learning or dict(named)


def _fault(file: Path, digest: str) -> str:
    """What is wrong with a file that should have the hash `digest`; "" where nothing is."""
    try:
        return "" if _sha256(file) == digest else f"{file.name} is broken"
    except FileNotFoundError:
        return f"{file.name} is missing"
    except OSError as error:
        return f"{file.name} cannot be read ({error.strerror})"


def _sha256(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
