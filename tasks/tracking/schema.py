"""Whether a database's tables are those of the installed MLflow, asked before MLflow opens them.

MLflow does one of two things to tables of an earlier version of its own: where one is missing it migrates all of them,
be it for a command that only looks, and else it refuses. A migration is not undone by installing the earlier version
again, so it is a person's decision, behind a backup: such a database is refused here in one line, with the commands.
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

from models.errors import UserError

STEP_SECONDS = 2.0
"""Longer than one step takes of the migrations by which MLflow makes its tables, seconds."""

_OWN = re.compile(r"""^revision(?:: \w+)? = ["'](\w+)["']""", flags=re.MULTILINE)
_BEFORE = re.compile(r"""^down_revision\b[^=]*= ["'](\w+)["']""", flags=re.MULTILINE)
"""How a migration of Alembic's names its own revision and the one before it."""


@dataclass(frozen=True)
class Schema:
    """The version of a database's tables, and of those that the installed MLflow wants."""

    database: str
    """Where it is, for a person."""
    there: str
    """Alembic's revision of the tables."""
    upgrade: str
    """The command that makes them current."""
    wanted: str
    """The newest revision that the installed MLflow knows."""
    known: bool
    """Whether the installed MLflow knows the revision that is there; it knows all earlier ones."""

    @classmethod
    def of(cls, database: str, there: str, upgrade: str) -> Schema:
        """That of tables of the revision `there`, beside the installed MLflow's."""
        wanted, known = _revisions()
        return cls(database, there, upgrade, wanted, there in known)

    @property
    def current(self) -> bool:
        return self.there == self.wanted

    @property
    def versions(self) -> str:
        """What is wrong, in words."""
        older = "an older" if self.known else "a newer"
        return f"{self.database}: made by {older} MLflow (tables {self.there}, this one's are {self.wanted})"

    @property
    def mend(self) -> str:
        """What to do about it."""
        if self.known:
            return f"`rewardflow backup FILE`, then `{self.upgrade}` (docs/operations.md, Upgrade)"
        return "install that version, or restore a backup that was made before it"

    def require_current(self) -> None:
        """Let nobody open tables of another version of MLflow.

        Raises:
            UserError: they are older or newer; the text names what to do.
        """
        if not self.current:
            raise UserError(f"{self.versions}; {self.mend}")


def schema_of(home: Path) -> Schema | None:
    """The schema of `home`'s database; None where there is none yet, or no database of MLflow's.

    One that another process is making just now goes through all revisions: it is waited for.
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
    """`Schema.require_current` of the embedded store of `home`."""
    schema = schema_of(home)
    if schema is not None:
        schema.require_current()


def _revision_of(database: Path) -> str:
    """Alembic's revision in a database; "" where there is none."""
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=10.0)) as reading:
            row = reading.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.Error:  # no tables yet, or no database: whoever opens it says so
        return ""
    return row[0] if row else ""


@cache
def _revisions() -> tuple[str, frozenset[str]]:
    """The newest revision of the installed MLflow, and all.

    Read off the texts of its migrations: to import them, as Alembic does, is to import MLflow.
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
