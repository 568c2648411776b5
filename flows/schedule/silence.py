"""Silence: a deployment whose run came due and did not begin, also while nobody served it. People are told once.

What began is on record in the state folder, not on Prefect's server, whose database may be new or away; and a clock is
handed in, so that nights can be lived through.

    deployments/NAME.served.json    its schedules, and up to when every due run is accounted for
    deployments/NAME.run.json       its last run: begun, ended, and the process, by which one that goes on is known

A run that waits for its turn has begun. What comes due while the one before goes on is not missed: Prefect cancels it,
as prefect.yaml asks.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice, takewhile
from pathlib import Path
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from flows.runtime.telling import MINUTE, tell
from models.atomic_write import write_file
from models.errors import UserError
from tasks.host import clock
from tasks.tracking import process

_LOG = logging.getLogger(__name__)

Schedules = Sequence[tuple[str, str]]
"""Cron and time zone, each; a run is due whenever any of them says so."""

GRACE = timedelta(minutes=15)
"""How long after it came due a run may begin."""
MOST = 1000
"""Due runs of a schedule that are counted."""


@dataclass(frozen=True)
class LastRun:
    """The last run of a deployment."""

    begun: datetime
    until: datetime
    """When it ended; the present, while it goes on; when it began, where it was killed."""


@dataclass(frozen=True)
class Missed:
    """Runs of a deployment that came due and did not begin."""

    deployment: str
    due: tuple[datetime, ...]
    """The oldest first, at least one."""

    def __str__(self) -> str:
        last = f"{self.due[-1]:%Y-%m-%d %H:%M %Z}"
        if len(self.due) == 1:
            return f"{self.deployment} did not run: it was due at {last}"
        return f"{self.deployment} did not run: {len(self.due)} runs were due, the last at {last}"


def missed_runs(
    schedules: Schedules, last: LastRun | None, since: datetime, now: datetime, grace: timedelta = GRACE
) -> tuple[datetime, ...]:
    """When runs came due and did not begin, the oldest first.

    Args:
        last: the last run, if there was any.
        since: up to then everything is accounted for.
        grace: what came due within it may still begin.

    Raises:
        UserError: a cron or a time zone is none.
    """
    known = since if last is None else max(since, last.begun, last.until)
    due: set[datetime] = set()
    for cron, zone in schedules:
        try:
            times: Iterator[datetime] = CronSim(cron, known.astimezone(ZoneInfo(zone)))
        except (CronSimError, ValueError, KeyError, OSError) as error:
            raise UserError(f"no schedule: {cron!r} in {zone!r} ({error})") from None
        due.update(takewhile(lambda time: time <= now - grace, islice(times, MOST)))
    return tuple(sorted(due))


def silent(home: Path, deployments: Mapping[str, Schedules], now: datetime) -> list[Missed]:
    """What was missed by each deployment since it was served first, or was told of; a schedule that changed is new."""
    said = []
    for name, schedules in deployments.items():
        since = _accounted_for(home, name, schedules)
        if since is None:
            account(home, name, schedules, now)
        elif due := missed_runs(schedules, last_run(home, name, now), since, now):
            said.append(Missed(name, due))
    return said


def tell_of_silence(home: Path, deployments: Mapping[str, Schedules], link: str, now: datetime | None = None) -> None:
    """Tell of every due run that did not begin, once, and warn of it here.

    Args:
        deployments: name -> schedules.
        link: where to look.
        now: the present; the clock's, if left out.
    """
    now = now or clock.now()
    try:
        for missed in silent(home, deployments, now):
            _LOG.warning("%s", missed)
            tell(home, "silent", str(missed), {"name": missed.deployment, "due": missed.due[-1].isoformat()}, link)
            account(home, missed.deployment, deployments[missed.deployment], missed.due[-1])
    except (OSError, UserError) as error:
        _LOG.warning("nobody is told of missed runs: %s", error)


@contextmanager
def watching(home: Path, deployments: Mapping[str, Schedules], link: str, every: float = MINUTE) -> Iterator[None]:
    """Tell of silence at once, of what was missed while nobody served, and again and again while a schedule is served.

    Args: as of `tell_of_silence`; `every`: seconds.
    """
    over = threading.Event()

    def work() -> None:
        tell_of_silence(home, deployments, link)
        while not over.wait(every):
            tell_of_silence(home, deployments, link)

    thread = threading.Thread(target=work, name="silence", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()


def account(home: Path, name: str, schedules: Schedules, until: datetime) -> None:
    """Everything that was due up to a time is accounted for."""
    entry = {"schedules": [list(entry) for entry in schedules], "since": until.isoformat()}
    _write(_place(home, name, "served"), entry)


@contextmanager
def on_record(home: Path, name: str) -> Iterator[None]:
    """Keep that a deployment's run began, and that it ended. `name`: of the deployment; "" for a run of none."""
    if not name:
        yield
        return
    place, entry = _place(home, name, "run"), {"begun": clock.now().isoformat(), **process.mark()}
    with suppress(OSError, UserError):  # the run itself says what is wrong with the folder
        _write(place, entry)
    try:
        yield
    finally:
        with suppress(OSError, UserError):
            _write(place, entry | {"ended": clock.now().isoformat()})


def last_run(home: Path, name: str, now: datetime) -> LastRun | None:
    """The last run of a deployment on record."""
    entry = _read(_place(home, name, "run"))
    try:
        begun = datetime.fromisoformat(entry["begun"])
        if "ended" in entry:
            return LastRun(begun, datetime.fromisoformat(entry["ended"]))
        return LastRun(begun, begun if process.surely_dead(entry) else now)
    except (KeyError, ValueError, TypeError):
        return None


def _accounted_for(home: Path, name: str, schedules: Schedules) -> datetime | None:
    entry = _read(_place(home, name, "served"))
    try:
        same = [tuple(known) for known in entry["schedules"]] == [tuple(known) for known in schedules]
        return datetime.fromisoformat(entry["since"]) if same else None
    except (KeyError, ValueError, TypeError):
        return None


def _place(home: Path, name: str, what: str) -> Path:
    return home / "deployments" / f"{quote(name, safe='')}.{what}.json"


def _write(place: Path, entry: Mapping[str, Any]) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    write_file(place, json.dumps(entry) + "\n")


def _read(place: Path) -> dict[str, Any]:
    try:
        entry = json.loads(place.read_bytes())
    except (OSError, ValueError):
        return {}
    return entry if isinstance(entry, dict) else {}
