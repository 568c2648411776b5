"""What time it is for people, in messages, verdicts and the audit log: one place, so that tests live through months."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """The time, UTC."""
    return datetime.now(tz=UTC)


def stamp() -> str:
    """The time as people read it."""
    return now().strftime("%Y-%m-%d %H:%M:%S UTC")
