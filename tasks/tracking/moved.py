"""Update of the artifact addresses in the database of a state folder that was moved or copied.

MLflow stores the addresses of each run's and each model's artifacts as absolute addresses, and makes relative ones
absolute. A folder that is opened under another path than it was written under would therefore read its older artifacts
from the old path or, if it was copied, write its new ones there. Artifacts in the folder itself are found by the end of
their addresses.
"""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote, unquote, urlparse

from models.base.errors import UserError

ARTIFACTS = "mlartifacts"
"""Folder of the artifacts, next to the database."""
PATIENCE = 10.0
"""Seconds to wait for another process that writes to the database."""
_ADDRESSES = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "storage_location"),
)
_LOG = logging.getLogger("rewardflow.tracking")


def update_addresses(home: Path) -> int:
    """Change the artifact addresses in `home`'s database to the folder's current path; return how many were changed.

    Raises:
        UserError: the folder was moved, and its database cannot be written to.
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
    """Return the earlier paths of this state folder, as its experiments record them, if their artifacts are here."""
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=PATIENCE)) as reading:
            made = reading.execute("SELECT name, artifact_location FROM experiments").fetchall()
    except sqlite3.Error:  # no tables yet, or not a database of MLflow, which reports it itself
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
