"""Runs queries that a model wrote against a database: SQLite in memory, within the sandbox.

    Query("SELECT name FROM people", ...) -> names of the database, and for each query the rows' hashes or the failure

All queries of a database are one run of the sandbox. If that run ends without an answer, each query is run alone, so
that one query that breaks SQLite does not affect the others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.sandbox.interface import ProgramRunner

STEPS = 1_000_000
"""Steps of SQLite's virtual machine that a query may take, about a hundredth of a second or a few."""
ROWS = 10_000
"""Largest number of rows of a query."""
VOLUME = 1 << 22
"""Largest number of characters in all rows of a query."""
LONGEST = 10_000
"""Largest number of characters in a query."""
TOGETHER = 64
"""Largest number of queries in one run."""
_INSIDE = (Path(__file__).parent / "inside" / "queries.py").read_text(encoding="utf-8")


@dataclass(frozen=True)
class QueryResult:
    """Outcome of a query."""

    ordered: str = ""
    """Hash of the rows in their order; empty: the query failed."""
    unordered: str = ""
    """Hash of the rows in any order."""
    rows: int = 0
    """Number of rows."""
    columns: int = 0
    """Number of columns, also of a result without rows."""
    reads: frozenset[str] = frozenset()
    """Columns that the query reads, as TABLE.COLUMN in lower case."""
    why: str = ""
    """Reason of the failure; empty: none."""

    @property
    def ran(self) -> bool:
        """Whether the query ran without a failure, with or without rows."""
        return bool(self.ordered)


@dataclass(frozen=True)
class DatabaseAnswers:
    """Answers of a database."""

    names: frozenset[str]
    """Names of its tables and columns, in lower case."""
    results: tuple[QueryResult, ...]
    """Result of each query, [queries]."""
    broken: str = ""
    """Reason why the database cannot be made; empty: it can."""


def ask(sandbox: ProgramRunner, queries_of: Mapping[str, Sequence[str]]) -> dict[str, DatabaseAnswers]:
    """Run the queries of each database.

    Args:
        sandbox: where they run.
        queries_of: queries by database, which is given by the statements that make it.

    Raises:
        UserError: this machine has too few layers to hold them, and that is not accepted.
    """
    runs = [
        (database, tuple(queries[first : first + TOGETHER]))
        for database, queries in queries_of.items()
        for first in range(0, max(1, len(queries)), TOGETHER)
    ]
    answers: dict[str, DatabaseAnswers] = {}
    for (database, queries), answer in zip(runs, _run(sandbox, runs), strict=True):
        if answer is None and len(queries) > 1:
            outputs = _run(sandbox, [(database, (query,)) for query in queries])
        else:
            outputs = [answer]
        for output in outputs:
            part = _answers_of(output, len(queries) // len(outputs))
            before = answers.get(database, DatabaseAnswers(frozenset(), ()))
            answers[database] = DatabaseAnswers(
                before.names | part.names, before.results + part.results, before.broken or part.broken
            )
    return answers


def _run(sandbox: ProgramRunner, runs: Sequence[tuple[str, tuple[str, ...]]]) -> list[Mapping[str, Any] | None]:
    """Return the output of each run, [runs]; None for a run that ended without output."""
    return [_read(output) for output in sandbox.scripts([_script(*run) for run in runs])]


def _script(database: str, queries: Sequence[str]) -> str:
    limits = {"steps": STEPS, "rows": ROWS, "characters": LONGEST, "volume": VOLUME}
    request = {"database": database, "queries": queries, **limits}
    return f"{_INSIDE}\n\nmain({json.dumps(request)!r})\n"


def _read(result: Any) -> Mapping[str, Any] | None:
    try:
        answer = json.loads(result.output)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _answers_of(answer: Mapping[str, Any] | None, queries: int) -> DatabaseAnswers:
    if answer is None:
        return DatabaseAnswers(frozenset(), (QueryResult(why="it broke the database, or took too long"),) * queries)
    if "broken" in answer:
        return DatabaseAnswers(
            frozenset(), (QueryResult(why="the database is missing"),) * queries, str(answer["broken"])
        )
    return DatabaseAnswers(frozenset(answer["names"]), tuple(_result(each) for each in answer["results"]))


def _result(fields: Mapping[str, Any]) -> QueryResult:
    return QueryResult(**{**fields, "reads": frozenset(fields["reads"])})
