"""A state folder that was moved or copied: the addresses in its embedded store follow it.

MLflow writes down where each run's and each model's artifacts lie, as absolute addresses, and makes relative ones
absolute. So a folder that is opened under another path than it was written under would read its older artifacts where
it was, or, copied, write its new ones there. What lies in the folder itself is found by what the addresses end in.
"""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote, unquote, urlparse

from models.errors import UserError

ARTIFACTS = "mlartifacts"
"""Folder of the artifacts, beside the database."""
PATIENCE = 10.0
"""Seconds to wait for another process that writes to the database."""
_ADDRESSES = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "storage_location"),
)
_LOG = logging.getLogger("rewardflow.tracking")


def follow(home: Path) -> int:
    """Make the addresses in `home`'s database those of the folder as it lies now. Returns how many were changed.

    Raises:
        UserError: it was moved, and cannot be written to.
    """
    database = home / "mlflow.db"
    if not database.is_file():
        return 0
    before = _former_places(database, home)
    if not before:
        return 0
    try:
        with closing(sqlite3.connect(database, timeout=PATIENCE)) as writing, writing:
            changed = sum(_replace(writing, _prefix(place), _prefix(home)) for place in before)
    except sqlite3.OperationalError as error:
        raise UserError(
            f"{home}: was moved from {before[0]}, and the addresses in {database.name} cannot be changed to follow it "
            f"({error}); make the folder writable, or move it back"
        ) from error
    _LOG.info("%s was moved from %s: %d addresses of artifacts follow it", home, before[0], changed)
    return changed


def _former_places(database: Path, home: Path) -> list[Path]:
    """Other state folders under which experiments of this database were made, whose artifacts lie here."""
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=PATIENCE)) as reading:
            made = reading.execute("SELECT name, artifact_location FROM experiments").fetchall()
    except sqlite3.Error:  # no tables yet, or no database of MLflow's: it says so itself
        return []
    places: list[Path] = []
    for name, location in made:
        if not str(location).endswith(f"/{ARTIFACTS}/{quote(str(name))}") or not (home / ARTIFACTS / name).is_dir():
            continue
        place = Path(unquote(urlparse(location).path).removesuffix(f"/{ARTIFACTS}/{name}"))
        if place not in (home, *places) and not (place.is_dir() and place.samefile(home)):
            places.append(place)
    return places


def _prefix(home: Path) -> str:
    return f"{(home / ARTIFACTS).as_uri()}/"


def _replace(database: sqlite3.Connection, old: str, new: str) -> int:
    return sum(
        database.execute(
            f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE substr({column}, 1, ?) = ?",
            (new, len(old) + 1, len(old), old),
        ).rowcount
        for table, column in _ADDRESSES
    )
