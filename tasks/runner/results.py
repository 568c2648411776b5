"""A step's result on the disk, which may be reused only if its outputs are exactly those that it records.

`result.json` is written last. It lists every output file with its size and SHA-256 and contains a hash of itself, so a
file that was changed, cut short, removed or added is detected, and so is a result that was edited. A link to a folder
counts as an added file: no step makes one, and its contents would not be checked. No path in a result points outside
its folder: a state folder may be moved or copied.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models.base.atomic_write import write_file
from models.base.disk import needs_space
from models.base.file_hash import sha256_of

RESULT = "result.json"
CHECKPOINTS = "checkpoints"
"""Folder of the checkpoints that a step resumes from; it is not an output, and is deleted when the step is done."""
MADE_FROM_OUTPUTS = re.compile(r"\..+\.rows")
"""Names of folders that `row_table` derives from the outputs; they are not outputs themselves."""
EARLIER = ".result.earlier"
"""File next to a result that was made again: the MLflow runs that had made it before, one a line, newest first. A
champion may have come from them, and the outputs are kept for it (tasks/state/prune.py)."""


class NotAsMade(Exception):
    """A result that must not be reused; the text gives the reason."""


def write_result(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write `facts` and the hashes of the outputs in `folder` to its `result.json`, atomically.

    Args:
        folder: the outputs, all of them written.
        facts: plain data; the keys `outputs` and `sha256` are added.
    """
    content: dict[str, Any] = {**facts, "outputs": {name: _entry(file) for name, file in _outputs(folder).items()}}
    content["sha256"] = _hash_of(content)
    write_file(folder / RESULT, json.dumps(content, indent=1) + "\n")


def read_result(folder: Path) -> dict[str, Any] | None:
    """Check the outputs of a step and return the facts that `write_result` wrote; None if they were never written.

    Raises:
        NotAsMade: the result is broken, or the outputs differ from those that it lists.
    """
    try:
        content = json.loads((folder / RESULT).read_bytes())
        recorded_hash = content.pop("sha256")
        outputs = dict(content["outputs"])
        recorded_files = {name: (entry["bytes"], entry["sha256"]) for name, entry in outputs.items()}
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise NotAsMade(f"{RESULT} is broken") from None
    if _hash_of(content) != recorded_hash:
        raise NotAsMade(f"{RESULT} was changed")
    present_files = _outputs(folder)
    for name in sorted(recorded_files.keys() ^ present_files.keys()):
        raise NotAsMade(f"{name} {'is missing' if name in recorded_files else 'was added'}")
    # Sizes first: a file that was cut short is found without reading all the others.
    for name, file in present_files.items():
        if file.stat().st_size != recorded_files[name][0]:
            raise NotAsMade(f"{name} has {file.stat().st_size:,} bytes, not {recorded_files[name][0]:,}")
    for name, file in present_files.items():
        if sha256_of(file) != recorded_files[name][1]:
            raise NotAsMade(f"{name} has other content than was made")
    del content["outputs"]
    return dict(content)


def clear_result(folder: Path) -> None:
    """Remove a complete result with its outputs; if a stopped step has left files without a result, they stay.

    The runs that had made it are still recorded (`runs_of`).
    """
    if (folder / RESULT).is_file():
        earlier_runs = runs_of(folder)
        old_folder = folder.with_name(f".{folder.name}.{os.getpid()}.gone")
        os.replace(folder, old_folder)  # atomic: a kill in between leaves no half of it
        if earlier_runs:
            with needs_space(folder):
                folder.mkdir()
                (folder / EARLIER).write_text("\n".join(earlier_runs) + "\n", encoding="utf-8")
        shutil.rmtree(old_folder)


def runs_of(folder: Path) -> list[str]:
    """Return the ids of the MLflow runs that made the outputs in `folder`, newest first; no hash is checked.

    Runs before the last one are recorded from its result onwards; without a result, there may still be earlier ones.
    """
    try:
        facts = json.loads((folder / RESULT).read_bytes())
        last_run = [str(facts["run_id"])]
    except (OSError, ValueError, TypeError, KeyError):
        last_run = []
    try:
        earlier_runs = (folder / EARLIER).read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        earlier_runs = []
    return list(dict.fromkeys([*last_run, *earlier_runs]))


def _outputs(folder: Path) -> dict[str, Path]:
    """Return relative path (POSIX) -> path of every output of the step in `folder`."""
    files = {}
    for file in sorted(folder.rglob("*")):
        relative_path = file.relative_to(folder)
        top = relative_path.parts[0]
        excluded = top in (RESULT, CHECKPOINTS) or top.startswith(".result.") or MADE_FROM_OUTPUTS.fullmatch(top)
        if not excluded and (file.is_symlink() or not file.is_dir()):
            files[relative_path.as_posix()] = file
    return files


def _entry(file: Path) -> dict[str, Any]:
    return {"bytes": file.stat().st_size, "sha256": sha256_of(file)}


def _hash_of(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
