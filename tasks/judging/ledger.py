"""The ledger: a JSON file that counts looks at problems, with the rules by which the registry counts those of the gate.

    {"version": 1, "splits": {DIGEST: {"looks", "spent", "before", "compared", "sketch"}}, "history": [...]}

A look is written before it is taken, so that a process that is killed has spent it. Processes that use one ledger wait
for each other.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from models.base.atomic_write import write_file
from models.base.errors import UserError
from models.base.strict_json import JsonError, parse_json
from models.evaluation.gate.budget import Look
from tasks.gate.gate_split import digest_of, sketch_of
from tasks.tracking.looks import Budgeted, count_look


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class SplitCount(_Strict):
    """Looks at one set of problems."""

    looks: int = Field(ge=1)
    spent: float = Field(ge=0)
    """Error probability that all looks until now may spend."""
    before: float = Field(ge=0)
    """The same without the last look."""
    compared: str
    """Identifies the last comparison."""
    sketch: str


class LedgerEntry(_Strict):
    """One look, for readers."""

    at: str
    """UTC."""
    split: str
    look: int
    alpha: float
    metric: str
    champion: str
    candidate: str
    decision: str = ""
    """Empty: the look was counted and the process ended before the verdict."""


class Ledger(_Strict):
    """The looks at all sets of problems of one file."""

    version: int = Field(default=1, ge=1, le=1)
    splits: dict[str, SplitCount] = Field(default_factory=dict)
    history: list[LedgerEntry] = Field(default_factory=list)

    def take(self, split: str, sketch: str, compared: str, settings: Budgeted) -> Look:
        """Count a look at a set of problems and return it.

        Args:
            split: digest of the problems.
            sketch: sketch of the problems; sets that share problems share a count (tasks/gate/gate_split.py).
            compared: identifies the comparison; the same as at the last look continues that look.
            settings: divides the error budget over looks.
        """
        known = {name: count.model_dump() for name, count in self.splits.items()}
        counted = count_look(known, split, sketch, compared, settings)
        self.splits[split] = SplitCount(**counted.entry)
        for name in counted.outgrown:
            del self.splits[name]
        return counted.look


def read_ledger(file: Path) -> Ledger:
    """Read a ledger; an empty one if the file does not exist.

    Raises:
        UserError: it is not a ledger. It is left as it is: an empty count would give the error budget back.
    """
    try:
        return Ledger.model_validate(parse_json(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Ledger()
    except OSError as error:
        raise UserError(f"--ledger {file}: cannot be read ({error.strerror})") from None
    except (JsonError, UnicodeDecodeError, ValidationError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise UserError(f"--ledger {file}: not a ledger of judge ({reason}); restore it or name a new file") from None


def take_look(
    file: Path, problems: Sequence[str], compared: str, settings: Budgeted, metric: str, champion: str, candidate: str
) -> Look:
    """Count a look in a ledger file, which is created if it does not exist; see `Ledger.take`.

    Args:
        file: the ledger.
        problems: identities of the problems.
        compared: identifies the comparison.
        settings: divides the error budget over looks.
        metric: primary metric, for readers.
        champion: source of its answers, for readers.
        candidate: source of its answers, for readers.

    Raises:
        UserError: the file is not a ledger, or cannot be written.
    """
    with _locked(file):
        ledger = read_ledger(file)
        look = ledger.take(digest_of(problems), sketch_of(problems), compared, settings)
        entry = LedgerEntry(
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            split=digest_of(problems),
            look=look.number,
            alpha=look.alpha,
            metric=metric,
            champion=champion,
            candidate=candidate,
        )
        ledger.history = [*(old for old in ledger.history if not _same(old, entry)), entry]
        write_file(file, ledger.model_dump_json(indent=1) + "\n")
    return look


def note_decision(file: Path, problems: Sequence[str], look: Look, decision: str) -> None:
    """Write the decision of a look into the ledger's history."""
    split = digest_of(problems)
    with _locked(file):
        ledger = read_ledger(file)
        for entry in ledger.history:
            if (entry.split, entry.look) == (split, look.number):
                entry.decision = decision
        write_file(file, ledger.model_dump_json(indent=1) + "\n")


def _same(old: LedgerEntry, new: LedgerEntry) -> bool:
    """Return whether two entries are of one look: a look that is continued is listed once."""
    return (old.split, old.look) == (new.split, new.look)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold the lock on a ledger: that of its folder, because the file itself is replaced by every write."""
    try:
        file.absolute().parent.mkdir(parents=True, exist_ok=True)
        folder = os.open(file.absolute().parent, os.O_RDONLY)
    except OSError as error:
        raise UserError(f"--ledger {file}: cannot be written ({error.strerror})") from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    except PermissionError as error:
        raise UserError(f"--ledger {file}: cannot be written ({error.strerror})") from None
    finally:
        os.close(folder)
