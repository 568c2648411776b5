"""Which state folder a run was made with: on a server that several share, what one folder needs, only it can tell.

A folder's mark is the random id that lies in it and a hash of where it lies: a copy has the id too, but another place.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from pathlib import Path

from models.atomic_write import write_file
from models.disk import needs_space
from tasks.tracking import store, tags

IDENTITY = "id"
"""File of the state folder's random id."""


def mark() -> str:
    """The mark of the state folder in use; it is given its id where it has none."""
    home = store.current().home
    if not _identity(home):
        with store.exclusive("identity"), needs_space(home):
            if not _identity(home):
                write_file(home / IDENTITY, uuid.uuid4().hex)
    return _mark(home)


def made_here(run_tags: Mapping[str, str]) -> bool:
    """Whether a run with these tags was surely made with the state folder in use.

    In the folder's own database that is every run but those that say of another folder; the folder may have been moved.
    Elsewhere it is a run that says so; those of earlier versions say nothing.
    """
    here = store.current()
    said = run_tags.get(tags.STATE_FOLDER, "")
    if here.own:
        return not said or said.split()[0] == _identity(here.home)
    return bool(_identity(here.home)) and said == _mark(here.home)


def _mark(home: Path) -> str:
    return f"{_identity(home)} {hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:16]}"


def _identity(home: Path) -> str:
    try:
        return (home / IDENTITY).read_text(encoding="utf-8").strip()
    except OSError:
        return ""
