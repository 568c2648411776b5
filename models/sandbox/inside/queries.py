"""Runs untrusted queries against a database. It is a script in the sandbox and needs only the standard library.

The database is made in memory. After that a query may read tables and call functions. SQLite itself refuses to attach
files, to load extensions, to run pragmas and to write. It also refuses random functions, because a reward must not
depend on chance. A query is stopped after a fixed number of steps of SQLite's virtual machine, not after a time.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable
from typing import Any

_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
_REFUSED = {"load_extension", "random", "randomblob", "fts3_tokenizer", "sqlite_log"}
_EVERY = 1000
"""Steps between two checks of the number of steps."""


class _Stopped(Exception):
    """The rows were too many, or too long in total."""


def main(request: str) -> None:
    """Print the outcome of each query of a request in JSON, the arguments of `answers` by their names."""
    print(json.dumps(answers(**json.loads(request))))


def answers(database: str, queries: list[str], steps: int, rows: int, characters: int, volume: int) -> dict[str, Any]:
    """Return the names that a database has, and the outcome of each query.

    Args:
        database: statements that make it.
        queries: one statement each.
        steps: steps of SQLite's virtual machine that a query, or making the database, may take.
        rows: that it may give.
        characters: that it, or a value of it, may be long.
        volume: characters that all its rows may have.
    """
    # a cached statement would not be authorised again, and the columns it reads would not be seen
    connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)
    connection.text_factory = lambda text: text.decode("utf-8", "replace")
    left = 0

    def over() -> int:
        nonlocal left
        left -= _EVERY
        return left < 0

    connection.set_progress_handler(over, _EVERY)
    left = steps
    try:
        connection.executescript(database)
        names = _names(connection)
    except (sqlite3.Error, ValueError, MemoryError) as error:
        return {"broken": f"{type(error).__name__}: {error}"[:200]}
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(characters, 1 << 16))
    connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, characters)
    connection.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 100)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    reads: set[str] = set()

    def allow(action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action == sqlite3.SQLITE_READ and second:
            reads.add(f"{first}.{second}".casefold())
        return _allow(action, second)

    connection.set_authorizer(allow)
    results = []
    for query in queries:
        left = steps
        reads.clear()
        results.append({**_result(connection, query, rows, volume), "reads": sorted(reads)})
    return {"names": names, "results": results}


def _allow(action: int, second: str | None) -> int:
    if action in _ALLOWED or (action == sqlite3.SQLITE_FUNCTION and str(second).casefold() not in _REFUSED):
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _names(connection: sqlite3.Connection) -> list[str]:
    """Return the names of all tables, views and their columns, in lower case."""
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")]
    columns = [
        name for table in tables for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
    ]
    return sorted({name.casefold() for name in [*tables, *columns]})


def _result(connection: sqlite3.Connection, query: str, most: int, volume: int) -> dict[str, Any]:
    """Return the result of a query, or the reason of its failure.

    The result has hashes of the rows as they come and of the rows in any order, and the numbers of rows and columns.
    """
    try:
        cursor = connection.execute(query)
        if cursor.description is None:
            return {"why": "gives no rows"}
        rows: list[str] = []
        room = volume
        for row in cursor:
            if len(rows) == most:
                raise _Stopped(f"more than {most} rows")
            rows.append(json.dumps([_plain(value) for value in row]))
            room -= len(rows[-1])
            if room < 0:
                raise _Stopped(f"more than {volume} characters in its rows")
        columns = len(cursor.description)
        cursor.close()
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError, _Stopped) as error:
        return {"why": f"{type(error).__name__}: {error}"[:200]}
    return {"ordered": _hash(rows), "unordered": _hash(sorted(rows)), "rows": len(rows), "columns": columns}


def _plain(value: Any) -> str | None:
    """Encode a value, equal for numbers that are equal to ten digits; a text is never equal to a number."""
    if isinstance(value, float):
        value = int(value) if value.is_integer() and abs(value) < 2**53 else f"{value:.10g}"
        return f"n{value}"
    if isinstance(value, int):
        return f"n{value}"
    if isinstance(value, bytes):
        return f"b{value.hex()}"
    return None if value is None else f"t{value}"


def _hash(rows: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(rows).encode("utf-8", "replace")).hexdigest()
