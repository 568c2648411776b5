"""Check that the tables of MLflow's database are those of the installed MLflow, before MLflow opens it.

MLflow handles tables of an earlier version in one of two ways: if one is missing it migrates all of them, even for a
command that only reads; otherwise it refuses. A migration is not undone by installing the earlier version again, so the
decision is left to a person, after a backup: such a database is refused here in one line, with the commands.
"""

from __future__ import annotations

import re
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from models.base.errors import UserError

STEP_SECONDS = 2.0
"""Upper limit for the time of one of the migrations by which MLflow makes its tables, seconds."""

_OWN = re.compile(r"""^revision(?:: \w+)? = ["'](\w+)["']""", flags=re.MULTILINE)
_BEFORE = re.compile(r"""^down_revision\b[^=]*= ["'](\w+)["']""", flags=re.MULTILINE)
"""Patterns by which a migration of Alembic's names its own revision and the one before it."""


@dataclass(frozen=True)
class Schema:
    """The version of a database's tables, and the version that the installed MLflow needs."""

    database: str
    """Location of the database, as error messages show it."""
    there: str
    """Alembic's revision of the tables."""
    upgrade: str
    """The command that makes them current."""
    wanted: str
    """The newest revision that the installed MLflow knows."""
    known: bool
    """Whether the installed MLflow knows the revision of the tables; it knows all earlier ones."""

    @classmethod
    def of(cls, database: str, there: str, upgrade: str) -> Schema:
        """Build the schema of tables of revision `there`, with the revisions of the installed MLflow."""
        wanted, known = _revisions()
        return cls(database, there, upgrade, wanted, there in known)

    @property
    def current(self) -> bool:
        return self.there == self.wanted

    @property
    def versions(self) -> str:
        """Sentence about the mismatch of the tables and the installed MLflow."""
        older = "an older" if self.known else "a newer"
        return f"{self.database}: made by {older} MLflow (tables {self.there}, this one's are {self.wanted})"

    @property
    def mend(self) -> str:
        """Advice on how to resolve the mismatch."""
        if self.known:
            return f"`rewardflow backup FILE`, then `{self.upgrade}` (docs/operations.md, Upgrade)"
        return "install that version, or restore a backup that was made before it"

    def require_current(self) -> None:
        """Refuse tables of another version of MLflow.

        Raises:
            UserError: they are older or newer; the message names the remedy.
        """
        if not self.current:
            raise UserError(f"{self.versions}; {self.mend}")


def schema_of(home: Path) -> Schema | None:
    """Return the schema of `home`'s database; None if there is none yet, or if it is not a database of MLflow.

    A database that another process is creating passes through all revisions: the function waits for the last.
    """
    database = home / "mlflow.db"
    if not database.is_file():
        return None
    wanted, _ = _revisions()
    there = _revision_of(database)
    while there and there != wanted:
        time.sleep(STEP_SECONDS)
        before, there = there, _revision_of(database)
        if there == before:
            break
    return Schema.of(str(database), there, f"mlflow db upgrade sqlite:///{database}") if there else None


def require_current(home: Path) -> None:
    """Refuse the database in `home` if its tables are those of another version of MLflow."""
    schema = schema_of(home)
    if schema is not None:
        schema.require_current()


def _revision_of(database: Path) -> str:
    """Return Alembic's revision in a database; "" if there is none."""
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=10.0)) as reading:
            row = reading.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.Error:  # no tables yet, or not a database: the caller that opens it reports it
        return ""
    return row[0] if row else ""


@cache
def _revisions() -> tuple[str, frozenset[str]]:
    """Return the newest revision of the installed MLflow, and all revisions.

    They are read from the source text of its migrations: importing them, as Alembic does, would import MLflow.
    """
    package = find_spec("mlflow")
    assert package is not None and package.submodule_search_locations
    folder = Path(package.submodule_search_locations[0]) / "store" / "db_migrations" / "versions"
    texts = [file.read_text() for file in folder.glob("*.py")]
    all_of_them, before = (
        {match[1] for text in texts for match in pattern.finditer(text)} for pattern in (_OWN, _BEFORE)
    )
    (head,) = all_of_them - before
    return head, frozenset(all_of_them)
