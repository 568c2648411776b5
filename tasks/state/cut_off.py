"""Records of unfinished trainings, so that the next training of a recipe can report why it does not resume one.

A killed training resumes by itself if nothing changed, as its key is the same (tasks/runner/step.py). If data, code or
recipe changed, the key is another, and it starts again; the checkpoints are kept for a caller who reverts the change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from models.base.atomic_write import write_file
from tasks.data.versions import DataVersion
from tasks.registered.difference import differing
from tasks.runner.results import CHECKPOINTS
from tasks.runner.step import source_hash

SHOWN = 3
"""Maximum number of changed settings that the report names."""


@dataclass(frozen=True)
class Unfinished:
    """A training that has begun and not finished, with its inputs."""

    run: str
    """Its MLflow run."""
    folder: str
    """Folder of its step, below the state folder, with its checkpoints."""
    data: str
    """Digest of the data version."""
    code: str
    """Hash of the source and of the packages that compute."""
    recipe: Mapping[str, str]
    """Every setting, as text."""

    def rounds(self, home: Path) -> int:
        """Return the number of rounds in its newest checkpoint; 0 without any."""
        names = [path.name for path in (home / self.folder / CHECKPOINTS).glob("round_*")]
        return max((int(name.removeprefix("round_")) for name in names if name[6:].isdigit()), default=0)

    def changed_to(self, other: Unfinished) -> list[str]:
        """Describe how the inputs of `other` differ from these, a phrase each."""
        words = []
        if self.data != other.data:
            words.append(f"the data were {self.data[:8]} and are {other.data[:8]}")
        if self.code != other.code:
            words.append("the code or its packages changed")
        settings = differing(self.recipe, other.recipe)
        words += [f"{it.name} was {it.before or 'not set'} and is {it.after or 'not set'}" for it in settings[:SHOWN]]
        return words + ([f"{len(settings) - SHOWN} other settings changed"] if len(settings) > SHOWN else [])


def unfinished_training(run: str, data: DataVersion, recipe: Mapping[str, str]) -> Unfinished:
    """Build the record of a training that begins now; its folder is added by `note`, when its inputs are known."""
    return Unfinished(run, "", data.digest, source_hash(), recipe)


def note(home: Path, name: str, training: Unfinished, folder: Path) -> None:
    """Record that a training of the recipe `name` has begun; `finished` deletes the record."""
    place = _place(home, name)
    place.parent.mkdir(exist_ok=True)
    whole = asdict(training) | {"folder": folder.relative_to(home).as_posix()}
    write_file(place, json.dumps(whole, indent=1) + "\n")


def finished(home: Path, name: str) -> None:
    """Delete the record of the recipe `name`: its training is finished."""
    _place(home, name).unlink(missing_ok=True)


def unfinished(home: Path, name: str) -> Unfinished | None:
    """Return the training of the recipe `name` that was cut off after a checkpoint; None if there is none to resume.

    A note that cannot be read is ignored: it is only used for a sentence.
    """
    try:
        training = Unfinished(**json.loads(_place(home, name).read_bytes()))
        return training if training.rounds(home) else None
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def awaited_folders(home: Path) -> set[Path]:
    """Return the step folders whose checkpoints the next run of a recipe can resume from: those that a note names."""
    folders = set()
    for file in (home / "unfinished").glob("*.json"):
        try:
            folders.add(home / str(json.loads(file.read_bytes())["folder"]))
        except (OSError, ValueError, TypeError, KeyError):
            continue
    return folders


def _place(home: Path, name: str) -> Path:
    return home / "unfinished" / f"{name}.json"
