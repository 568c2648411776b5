"""What a database answers to queries that a model wrote: SQLite in memory, within the sandbox.

    Query("SELECT name FROM people", ...) -> names of the database, and for each query the rows' hashes or why not

All queries of a database are one run of the sandbox. Where that run ends without an answer, each is asked by itself, so
that one which breaks SQLite costs its neighbours nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.sandbox.sandbox import Sandbox

STEPS = 1_000_000
"""Of SQLite's machine that a query may take; a hundredth of a second or a few."""
ROWS = 10_000
"""That a query may give."""
VOLUME = 1 << 22
"""Characters that all rows of a query may have."""
LONGEST = 10_000
"""Characters of a query."""
TOGETHER = 64
"""Queries of one run."""
_INSIDE = (Path(__file__).parent / "inside" / "queries.py").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Result:
    """What became of a query."""

    ordered: str = ""
    """Hash of the rows as they came; empty: there are none, for the query failed."""
    unordered: str = ""
    """Hash of the rows in any order."""
    rows: int = 0
    """How many it gave."""
    columns: int = 0
    """Of a row, and of none."""
    reads: frozenset[str] = frozenset()
    """TABLE.COLUMN of what it looks at, in small letters."""
    why: str = ""
    """It failed; empty: it did not."""

    @property
    def ran(self) -> bool:
        """Whether it gave rows, or none of them, without a failure."""
        return bool(self.ordered)


@dataclass(frozen=True)
class Answered:
    """What a database answered."""

    names: frozenset[str]
    """Of its tables and columns, in small letters."""
    results: tuple[Result, ...]
    """[queries]."""
    broken: str = ""
    """Why the database cannot be made; empty: it can."""


def ask(sandbox: Sandbox, asked: Mapping[str, Sequence[str]]) -> dict[str, Answered]:
    """What each database answers to its queries.

    Args:
        sandbox: where they run.
        asked: queries by database, which is the statements that make it.

    Raises:
        UserError: this machine has too few layers to hold them, and that is not accepted.
    """
    runs = [
        (database, tuple(queries[first : first + TOGETHER]))
        for database, queries in asked.items()
        for first in range(0, max(1, len(queries)), TOGETHER)
    ]
    answers: dict[str, Answered] = {}
    for (database, queries), answer in zip(runs, _run(sandbox, runs), strict=True):
        if answer is None and len(queries) > 1:
            alone = _run(sandbox, [(database, (query,)) for query in queries])
        else:
            alone = [answer]
        for each in alone:
            part = _answered(each, len(queries) // len(alone))
            before = answers.get(database, Answered(frozenset(), ()))
            answers[database] = Answered(
                before.names | part.names, before.results + part.results, before.broken or part.broken
            )
    return answers


def _run(sandbox: Sandbox, runs: Sequence[tuple[str, tuple[str, ...]]]) -> list[Mapping[str, Any] | None]:
    """What each run printed, [runs]; None where it ended without."""
    return [_read(output) for output in sandbox.scripts([_script(*run) for run in runs])]


def _script(database: str, queries: Sequence[str]) -> str:
    limits = {"steps": STEPS, "rows": ROWS, "characters": LONGEST, "volume": VOLUME}
    request = {"database": database, "queries": queries, **limits}
    return f"{_INSIDE}\n\nmain({json.dumps(request)!r})\n"


def _read(ran: Any) -> Mapping[str, Any] | None:
    try:
        answer = json.loads(ran.output)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _answered(answer: Mapping[str, Any] | None, queries: int) -> Answered:
    if answer is None:
        return Answered(frozenset(), (Result(why="it broke the database, or took too long"),) * queries)
    if "broken" in answer:
        return Answered(frozenset(), (Result(why="there is no database"),) * queries, str(answer["broken"]))
    return Answered(frozenset(answer["names"]), tuple(_result(each) for each in answer["results"]))


def _result(given: Mapping[str, Any]) -> Result:
    return Result(**{**given, "reads": frozenset(given["reads"])})
