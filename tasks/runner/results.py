"""A step's result on the disk, and the rule by which it is taken again: only where its outputs are what it says.

`result.json` is written last. It names every file beside it with its size and SHA-256 and carries a hash of itself,
so a file that was changed, cut short, removed or added is noticed, and so is a result that was edited. A link to a
folder counts as a file that was added: no step makes one, and what it holds is noticed by nobody. No path in a result
reaches outside its folder: a state folder may be moved or copied.
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

from models.atomic_write import write_file
from models.disk import needs_space
from models.file_hash import sha256_of

RESULT = "result.json"
CHECKPOINTS = "checkpoints"
"""Folder beside the outputs that a step goes on from; it is no output, and gone when the step is done."""
MADE_FROM_OUTPUTS = re.compile(r"\..+\.rows")
"""Names of folders beside the outputs that are made from them while they are used, and are none (`row_table`)."""
EARLIER = ".result.earlier"
"""File beside a result that was made anew: the MLflow runs that had made it before, one a line, newest first. What
they led to may be a champion, and the outputs are kept for it (tasks/state/prune.py)."""


class NotAsMade(Exception):
    """A result that must not be taken; the text says why."""


def write_result(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write `facts` as the result of what lies in `folder`: whole or not at all.

    Args:
        folder: the outputs, all of them written.
        facts: plain data; the keys `outputs` and `sha256` are added.
    """
    content: dict[str, Any] = {**facts, "outputs": {name: _entry(file) for name, file in _outputs(folder).items()}}
    content["sha256"] = _hash_of(content)
    write_file(folder / RESULT, json.dumps(content, indent=1) + "\n")


def read_result(folder: Path) -> dict[str, Any] | None:
    """The facts that `write_result` wrote; None where there is no result.

    Raises:
        NotAsMade: the result is broken, or what lies beside it is not what was there when it was written.
    """
    try:
        content = json.loads((folder / RESULT).read_bytes())
        recorded = content.pop("sha256")
        outputs = dict(content["outputs"])
        said = {name: (entry["bytes"], entry["sha256"]) for name, entry in outputs.items()}
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise NotAsMade(f"{RESULT} is broken") from None
    if _hash_of(content) != recorded:
        raise NotAsMade(f"{RESULT} was changed")
    there = _outputs(folder)
    for name in sorted(said.keys() ^ there.keys()):
        raise NotAsMade(f"{name} {'is missing' if name in said else 'was added'}")
    for name, file in there.items():  # sizes first: a file that was cut short costs no reading of all the others
        if file.stat().st_size != said[name][0]:
            raise NotAsMade(f"{name} has {file.stat().st_size:,} bytes, not {said[name][0]:,}")
    for name, file in there.items():
        if sha256_of(file) != said[name][1]:
            raise NotAsMade(f"{name} has other content than was made")
    del content["outputs"]
    return dict(content)


def clear_result(folder: Path) -> None:
    """Remove a result that is made anew, with its outputs; what a step that was stopped left stays as it is.

    The runs that had made it stay known (`runs_of`).
    """
    if (folder / RESULT).is_file():
        earlier = runs_of(folder)
        aside = folder.with_name(f".{folder.name}.{os.getpid()}.gone")
        os.replace(folder, aside)  # at once: a kill in between leaves no half of it
        if earlier:
            with needs_space(folder):
                folder.mkdir()
                (folder / EARLIER).write_text("\n".join(earlier) + "\n", encoding="utf-8")
        shutil.rmtree(aside)


def runs_of(folder: Path) -> list[str]:
    """MLflow runs that made what lies in `folder`, the last one first, whether or not it is still what they made.

    Those before the last one count from its result on; without a result, there may be earlier ones all the same.
    """
    try:
        facts = json.loads((folder / RESULT).read_bytes())
        last = [str(facts["run_id"])]
    except (OSError, ValueError, TypeError, KeyError):
        last = []
    try:
        earlier = (folder / EARLIER).read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        earlier = []
    return list(dict.fromkeys([*last, *earlier]))


def _outputs(folder: Path) -> dict[str, Path]:
    """Path below `folder`, in POSIX form -> file, of all that a step made there."""
    digests = {}
    for file in sorted(folder.rglob("*")):
        inside = file.relative_to(folder)
        top = inside.parts[0]
        ours = top in (RESULT, CHECKPOINTS) or top.startswith(".result.") or MADE_FROM_OUTPUTS.fullmatch(top)
        if not ours and (file.is_symlink() or not file.is_dir()):
            digests[inside.as_posix()] = file
    return digests


def _entry(file: Path) -> dict[str, Any]:
    return {"bytes": file.stat().st_size, "sha256": sha256_of(file)}


def _hash_of(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
