"""Parts of other installed packages: entry points of the group `rewardflow.parts`.

    [project.entry-points."rewardflow.parts"]
    "rewards.politeness" = "my_rewards.politeness"

The name of an entry point is SLOT.NAME of one part; its value is the module that registers the part with `@part`. The
module is imported with the other parts of its slot. A package that cannot be used is remembered with the reason and
changes nothing else; the reason becomes an error if a recipe names the part, or a command lists it.

This file finds packages and imports their modules. It knows no slot class, so that it loads without torch.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import MutableMapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from models.base.errors import shortened
from models.base.user_code.contain import UserCodeError, leaving

GROUP = "rewardflow.parts"
OWN_PACKAGE = "models."
"""Beginning of the names of this project's own modules."""


@dataclass(frozen=True)
class Plugin:
    """One entry point: a part that an installed package declares."""

    key: str
    """Name of the entry point, SLOT.NAME."""
    target: str
    """Value of the entry point: MODULE, or MODULE:ATTRIBUTE."""
    package: str
    version: str

    @property
    def slot(self) -> str:
        """Slot of the part; the whole key if that has no dot."""
        return self.key.partition(".")[0]

    @property
    def name(self) -> str:
        """Name of the part; the whole key if that has no dot."""
        return self.key.rpartition(".")[2]

    @property
    def module(self) -> str:
        """Module that registers the part."""
        return self.target.partition(":")[0].strip()

    @property
    def identity(self) -> tuple[str, str, str]:
        """Package, version, and SHA-256 of the source: what a result of the part depends on."""
        return self.package, self.version, source_hash(self.module)


_imported: set[Plugin] = set()
_faults: dict[Plugin, str] = {}
"""Plugins that cannot be used, with the reason."""


def declared() -> tuple[Plugin, ...]:
    """Return the entry points of all installed packages, in the order of their keys; nothing is imported."""
    return _declared(tuple(sys.path))


@lru_cache(maxsize=4)
def _declared(path: tuple[str, ...]) -> tuple[Plugin, ...]:
    """Return the entry points of the packages on `path`, which is `sys.path`; a search takes tens of milliseconds."""
    points = importlib.metadata.entry_points(group=GROUP)
    every = [
        Plugin(
            point.name,
            point.value,
            str((point.dist and point.dist.metadata["Name"]) or "a package without a name"),
            str((point.dist and point.dist.metadata["Version"]) or "without a version"),
        )
        for point in points
    ]
    return tuple(sorted(set(every), key=lambda plugin: (plugin.key, plugin.package)))


def import_plugins(slot: str, registered: MutableMapping[str, Any]) -> None:
    """Import the modules of the plugins of a slot that were not imported yet; reasons for failures are remembered.

    Args:
        slot: key of the slot.
        registered: the registry's parts of the slot, name -> class. `@part` adds to it; the part of a module that fails
            afterwards is removed.
    """
    for plugin in declared():
        if plugin.slot != slot or plugin in _imported or _is_being_imported(plugin.module):
            continue
        _imported.add(plugin)
        source_hash(plugin.module)  # of the files that are imported now
        earlier = registered.get(plugin.name)
        if earlier is not None and not _is_of(earlier, plugin):
            _faults[plugin] = f"the slot has a part of this name already, from {earlier.__module__}; choose another"
        elif reason := _fault(plugin, registered):
            _faults[plugin] = reason
            registered.pop(plugin.name, None)


def _fault(plugin: Plugin, registered: MutableMapping[str, Any]) -> str:
    """Import the module of a plugin. Return the reason why it cannot be used; "" if it can."""
    point = importlib.metadata.EntryPoint(plugin.key, plugin.target, GROUP)
    try:
        with leaving(plugin.module, f"importing {plugin.module}"):
            point.load()
    except UserCodeError as error:
        return str(error)
    except Exception as error:
        return f"importing {plugin.target} raises {type(error).__name__}: {shortened(error, 300)}"
    if plugin.name not in registered:
        return f"{plugin.module} registers no part {plugin.name!r} of the slot {plugin.slot}"
    return ""


def faults(slots: tuple[str, ...], wanted: str = "") -> list[str]:
    """Return one line for each plugin that cannot be used, with its package.

    Args:
        slots: all slots that there are; `models.method.registry.parts` was called for each.
        wanted: only of this slot, or with this name of a part; "": all.
    """
    lines = []
    for plugin in declared():
        if wanted not in ("", plugin.slot, plugin.name):
            continue
        if plugin.slot not in slots or "." not in plugin.key:
            reason = f"the entry point {plugin.key!r} is not SLOT.NAME; the slots are {', '.join(slots)}"
        elif plugin not in _faults:
            continue
        else:
            reason = _faults[plugin]
        lines.append(f"{plugin.package} {plugin.version} has the part {plugin.key}, which cannot be used: {reason}")
    return lines


def plugin_of(part_class: type) -> Plugin | None:
    """Return the plugin whose package defines a part; None for this project's own parts."""
    if part_class.__module__.startswith(OWN_PACKAGE):
        return None
    name = str(getattr(part_class, "name", ""))
    matching = [plugin for plugin in declared() if _is_of(part_class, plugin)]
    return min(matching, key=lambda plugin: (plugin.name != name, plugin.module != part_class.__module__), default=None)


def _is_of(part_class: type, plugin: Plugin) -> bool:
    place = source_of(plugin.module)
    file = getattr(sys.modules.get(part_class.__module__), "__file__", None)
    if place is None or file is None:
        return part_class.__module__ == plugin.module
    return Path(file) == place or place in Path(file).parents


def _is_being_imported(module: str) -> bool:
    """Return whether a module is being imported now, by code that imports it directly and needs parts itself."""
    return bool(getattr(getattr(sys.modules.get(module), "__spec__", None), "_initializing", False))


def source_of(module: str) -> Path | None:
    """Return the folder of the topmost package that contains a module, or its file if it is in no package.

    A package without `__init__.py` is shared by several installed packages, so the package in it counts. Nothing of the
    package is imported. None: there is no such module, or it has no file.
    """
    names = module.split(".")
    for depth in range(1, len(names) + 1):
        try:
            spec = importlib.util.find_spec(".".join(names[:depth]))
        except (ImportError, AttributeError, ValueError):
            return None
        if spec is None:
            return None
        if spec.origin is not None:
            place = Path(spec.origin)
            return place.parent if spec.submodule_search_locations is not None else place
    return None


@lru_cache(maxsize=64)
def source_hash(module: str) -> str:
    """Return the SHA-256 of all files of the package that contains a module, bytecode left out; "" if it has none."""
    place = source_of(module)
    if place is None or not place.exists():
        return ""
    inside = [file for file in place.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    total = hashlib.sha256()
    for file in sorted(inside) if place.is_dir() else [place]:
        total.update(f"{file.relative_to(place.parent)}\0{file.stat().st_size}\0".encode() + file.read_bytes())
    return total.hexdigest()
