"""The identifier of a state folder, by which the runs that it made are found on a server that several folders share.

This identifier, the folder's mark, is the random id stored in it and a hash of its path: a copy has the same id, but
another path.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from pathlib import Path

from models.base.atomic_write import write_file
from models.base.disk import needs_space
from tasks.tracking import store, tags

IDENTITY = "id"
"""Name of the file with the state folder's random id."""


def mark() -> str:
    """Return the mark of the state folder in use; create its id if it has none."""
    home = store.current().home
    if not _identity(home):
        with store.exclusive("identity"), needs_space(home):
            if not _identity(home):
                write_file(home / IDENTITY, uuid.uuid4().hex)
    return _mark(home)


def is_from_this_folder(run_tags: Mapping[str, str]) -> bool:
    """Return whether a run with these tags was certainly made with the state folder in use.

    In the folder's own database that is every run except those with the mark of another folder; the folder may have
    been moved. Elsewhere it is a run with this folder's mark; runs of earlier versions have no mark.
    """
    current_store = store.current()
    recorded_mark = run_tags.get(tags.STATE_FOLDER, "")
    if current_store.own:
        return not recorded_mark or recorded_mark.split()[0] == _identity(current_store.home)
    return bool(_identity(current_store.home)) and recorded_mark == _mark(current_store.home)


def _mark(home: Path) -> str:
    return f"{_identity(home)} {hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:16]}"


def _identity(home: Path) -> str:
    try:
        return (home / IDENTITY).read_text(encoding="utf-8").strip()
    except OSError:
        return ""
