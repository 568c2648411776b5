"""Removal of contents of the state folder that are not needed any more (`rewardflow gc`).

A step's outputs are kept if a registered version came from them (directly or through a result that was reused), if they
were made or last used within the retention time, if the next run of a recipe can resume from them, or if their run is
not in the tracking store in use, which therefore does not know which runs need them. The same holds for a logged model.
Outputs behind a champion, of today or before, are always kept. Runs and registered versions are never deleted.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from models.base.atomic_write import leftovers
from models.datasets.hub_reference import FOLDER as HUB_DATA
from models.policies.base_models.catalogue import entry_with
from models.policies.base_models.store import FOLDER as BASES
from tasks.registered.export import MAKING, SERVING, USING, unused
from tasks.runner.results import CHECKPOINTS, RESULT, runs_of
from tasks.runner.step import reference_folder, token_folder
from tasks.state.cut_off import awaited_folders
from tasks.tracking import needs, registry
from tasks.tracking.needs import Need, Unregistered

NO_STEPS = ("tokens", "reference", "precision")
"""Folders in `store/` that are caches and do not belong to a step."""


@dataclass(frozen=True)
class StateItem:
    """A file, folder or logged model, and whether gc removes it."""

    what: str
    """Path below the state folder, or the name of a model."""
    place: Path | None
    """Its path; None for a model on a server."""
    bytes: int
    used: datetime
    """Time of the last write or use."""
    why: str
    """Reason to keep or to remove it."""
    removed: bool
    model: Unregistered | None = None


def plan(home: Path, keep_days: float, refused: bool = False) -> list[StateItem]:
    """List all items in the state folder `home` that gc considers, each with the decision to keep or remove it.

    Args:
        keep_days: items used within this number of days are kept.
        refused: also remove old outputs behind versions that have no alias and never were champion;
            the versions themselves are kept in the registry, with their weights.
    """
    cutoff = datetime.now(tz=UTC) - timedelta(days=keep_days)
    needed = needs.needed_runs()
    awaited = awaited_folders(home)
    items = [_plan_step(home, folder, needed, cutoff, refused, folder in awaited) for folder in _step_folders(home)]
    kept_runs = {
        run_id for entry in items if not entry.removed and entry.place is not None for run_id in runs_of(entry.place)
    }
    items += [_plan_model(model, home, needed, kept_runs, cutoff, refused) for model in needs.unregistered_models()]
    for folder in (token_folder(home), reference_folder(home)):
        items += [_plan_entry(home, entry, cutoff, "made again when it is needed") for entry in _entries(folder)]
    downloads = _entries(registry.download_folder(home))
    items += [_plan_entry(home, entry, cutoff, "downloaded again when it is needed") for entry in downloads]
    hub_data = sorted((home / HUB_DATA).glob("*/*"))
    items += [_plan_entry(home, entry, cutoff, "fetched again when it is needed") for entry in hub_data]
    items += [_plan_base(home, entry, cutoff) for entry in _entries(home / BASES) if not entry.name.startswith(".")]
    items += [
        _plan_export(home, entry, cutoff) for entry in _entries(home / SERVING) if entry.suffix not in (MAKING, USING)
    ]
    items += [_plan_entry(home, entry, None, "left by a process that was killed") for entry in _leftovers(home)]
    return items


def remove(home: Path, items: Sequence[StateItem]) -> int:
    """Remove the items that are planned for removal, unless one is served by now; return the bytes freed.

    Call it while no run uses the state folder.
    """
    freed = 0
    for entry in items:
        if not entry.removed:
            continue
        with _hold_unserved(home, entry) as free:
            if free:
                _remove(entry)
                freed += entry.bytes
    return freed


def _hold_unserved(home: Path, entry: StateItem) -> AbstractContextManager[bool]:
    """Return a context that yields whether no process serves from it; none can begin to during the block."""
    if entry.place is None or entry.place.parent != home / SERVING:
        return nullcontext(True)
    return unused(entry.place)


def _remove(entry: StateItem) -> None:
    if entry.model is not None:
        needs.delete_model(entry.model)
    elif entry.place is not None and entry.place.is_dir():
        (entry.place / RESULT).unlink(missing_ok=True)  # first: a partly removed folder has no result
        shutil.rmtree(entry.place)
    elif entry.place is not None:
        entry.place.unlink()


def _plan_step(
    home: Path, folder: Path, needed: dict[str, Need], cutoff: datetime, refused: bool, awaited: bool
) -> StateItem:
    run_ids = runs_of(folder)
    used, size = _last_change(folder), _size(folder)
    step_needs = sorted((needed[run_id] for run_id in run_ids if run_id in needed), key=lambda need: not need.lasting)
    removed = False
    unfinished = not (folder / RESULT).is_file() and (folder / CHECKPOINTS).is_dir()
    if unfinished and (awaited or used > cutoff):
        why = "checkpoints of a run that can go on"
    elif step_needs and (step_needs[0].lasting or not refused):
        why = step_needs[0].why
    elif used > cutoff:
        why = "used within the retention time"
    elif run_ids and not needs.is_ours(run_ids[0]):
        why = "its run is not in the tracking store in use"
    else:
        removed, why = True, f"only {step_needs[0].why} needs it" if step_needs else "nothing needs it"
        if unfinished:
            why = "checkpoints of a stopped run that no recipe resumes from"
    return StateItem(str(folder.relative_to(home)), folder, size, used, why, removed)


def _plan_model(
    model: Unregistered, home: Path, needed: dict[str, Need], staying: set[str], cutoff: datetime, refused: bool
) -> StateItem:
    folder = registry.local_folder(model.location)
    removed = False
    if model.run_id in needed and (needed[model.run_id].lasting or not refused):
        why = needed[model.run_id].why
    elif model.run_id in staying:
        why = "the outputs of its step stay"
    elif model.created > cutoff:
        why = "used within the retention time"
    elif not model.is_from_this_folder:
        why = "made with another state folder of this server, or by an earlier version"
    else:
        removed, why = True, "nothing needs it"
    return StateItem(
        f"model {model.name} {model.model_id[:10]}",
        folder,
        _size(folder) if folder else 0,
        model.created,
        why,
        removed,
        model,
    )


def _plan_entry(home: Path, entry: Path, cutoff: datetime | None, why: str) -> StateItem:
    used = _last_change(entry)
    removed = cutoff is None or used <= cutoff
    reason = why if removed else "used within the retention time"
    return StateItem(str(entry.relative_to(home)), entry, _size(entry), used, reason, removed)


def _plan_export(home: Path, entry: Path, cutoff: datetime) -> StateItem:
    """Plan the removal of an item below `serving/`."""
    item = _plan_entry(home, entry, cutoff, "exported again when it is served")
    with unused(entry) as free:
        return item if free else replace(item, removed=False, why="it is being served")


def _plan_base(home: Path, entry: Path, cutoff: datetime) -> StateItem:
    """Plan the removal of a converted base model: one of the catalogue is kept, one of a GGUF file may go."""
    if entry_with(entry.name) is None:
        return _plan_entry(home, entry, cutoff, "converted again from its GGUF file when it is needed")
    return replace(_plan_entry(home, entry, cutoff, ""), removed=False, why="added with `rewardflow base add`")


def _step_folders(home: Path) -> list[Path]:
    return [
        folder
        for step in _entries(home / "store")
        if step.is_dir() and step.name not in NO_STEPS
        for folder in _entries(step)
        if folder.is_dir() and not folder.name.startswith(".")
    ]


def _leftovers(home: Path) -> list[Path]:
    """Return files with the temporary names of a removal, of the logging of a model or of a write."""
    return sorted([*home.glob("store/*/.*.gone"), *home.glob("logging-*"), *leftovers(home, deep=False),
                   *leftovers(home / BASES, deep=False)])  # fmt: skip


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _size(place: Path) -> int:
    """Return the bytes on the disk; a file with several links counts in part at each of them."""
    files = (file.lstat() for file in (place, *place.rglob("*")) if not file.is_dir() and file.exists())
    return sum(file.st_size // file.st_nlink for file in files)


def _last_change(place: Path) -> datetime:
    newest = max(entry.lstat().st_mtime for entry in (place, *place.rglob("*")))
    return datetime.fromtimestamp(newest, tz=UTC)
