"""The current time for people (messages, verdicts, audit log): one module, so that tests can simulate months."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """Return the current time, UTC."""
    return datetime.now(tz=UTC)


def stamp() -> str:
    """Return the current time as text for people."""
    return now().strftime("%Y-%m-%d %H:%M:%S UTC")
