"""Detection of missed runs: a deployment's run was due and did not start. Each is reported once.

The start of a run is recorded in the state folder, not on Prefect's server, whose database may be new or unreachable.
The clock is an argument, so that tests can simulate nights.

    deployments/NAME.served.json    its schedules, and the time up to which every due run is accounted for
    deployments/NAME.run.json       its last run: start, end, and the process, which shows whether it is still running

A run that waits for its turn counts as started. A run that comes due during the previous one is not missed: Prefect
cancels it, as prefect.yaml requests.
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

from flows.runtime.notifications import MINUTE, notify
from models.base.atomic_write import write_file
from models.base.errors import UserError
from tasks.host import clock
from tasks.tracking import process

_LOG = logging.getLogger(__name__)

Schedules = Sequence[tuple[str, str]]
"""Cron expression and time zone of each schedule; a run is due if it is by any of them."""

GRACE = timedelta(minutes=15)
"""Time after a due time within which the run may still start."""
MOST = 1000
"""Maximum number of due runs of a schedule that are examined."""


@dataclass(frozen=True)
class LastRun:
    """Start and end of the last run of a deployment."""

    begun: datetime
    until: datetime
    """End of the run; the present if it is still running, its start if it was killed."""


@dataclass(frozen=True)
class Missed:
    """Runs of a deployment that were due and did not start."""

    deployment: str
    due: tuple[datetime, ...]
    """Due times of the runs, at least one, the oldest first."""

    def __str__(self) -> str:
        last = f"{self.due[-1]:%Y-%m-%d %H:%M %Z}"
        if len(self.due) == 1:
            return f"{self.deployment} did not run: it was due at {last}"
        return f"{self.deployment} did not run: {len(self.due)} runs were due, the last at {last}"


def missed_runs(
    schedules: Schedules, last: LastRun | None, since: datetime, now: datetime, grace: timedelta = GRACE
) -> tuple[datetime, ...]:
    """Return the due times of runs that did not start, the oldest first.

    Args:
        last: the last run, if there was any.
        since: time up to which everything is accounted for.
        grace: a run that came due within this time may still start.

    Raises:
        UserError: a cron expression or a time zone is invalid.
    """
    accounted_until = since if last is None else max(since, last.begun, last.until)
    due: set[datetime] = set()
    for cron, zone in schedules:
        try:
            times: Iterator[datetime] = CronSim(cron, accounted_until.astimezone(ZoneInfo(zone)))
        except (CronSimError, ValueError, KeyError, OSError) as error:
            raise UserError(f"no schedule: {cron!r} in {zone!r} ({error})") from None
        due.update(takewhile(lambda time: time <= now - grace, islice(times, MOST)))
    return tuple(sorted(due))


def silent(home: Path, deployments: Mapping[str, Schedules], now: datetime) -> list[Missed]:
    """Return the missed runs of each deployment since it was first served, last reported or got other schedules."""
    missed = []
    for name, schedules in deployments.items():
        since = _accounted_for(home, name, schedules)
        if since is None:
            mark_reported(home, name, schedules, now)
        elif due := missed_runs(schedules, last_run(home, name, now), since, now):
            missed.append(Missed(name, due))
    return missed


def report_missed_runs(
    home: Path, deployments: Mapping[str, Schedules], link: str, now: datetime | None = None
) -> None:
    """Notify people of every missed run, once, and log a warning.

    Args:
        deployments: name -> schedules.
        link: address of the page with details.
        now: the present; by default the clock's time.
    """
    now = now or clock.now()
    try:
        for missed in silent(home, deployments, now):
            _LOG.warning("%s", missed)
            notify(home, "silent", str(missed), {"name": missed.deployment, "due": missed.due[-1].isoformat()}, link)
            mark_reported(home, missed.deployment, deployments[missed.deployment], missed.due[-1])
    except (OSError, UserError) as error:
        _LOG.warning("missed runs are not reported: %s", error)


@contextmanager
def watching(home: Path, deployments: Mapping[str, Schedules], link: str, every: float = MINUTE) -> Iterator[None]:
    """Report missed runs while the schedule is served, at once those from the time when it was not served.

    Args: as of `report_missed_runs`; `every`: seconds.
    """
    over = threading.Event()

    def report_repeatedly() -> None:
        report_missed_runs(home, deployments, link)
        while not over.wait(every):
            report_missed_runs(home, deployments, link)

    thread = threading.Thread(target=report_repeatedly, name="silence", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()


def mark_reported(home: Path, name: str, schedules: Schedules, until: datetime) -> None:
    """Record that missed runs up to the time `until` need not be reported any more."""
    entry = {"schedules": [list(entry) for entry in schedules], "since": until.isoformat()}
    _write(_place(home, name, "served"), entry)


@contextmanager
def recorded_run(home: Path, name: str) -> Iterator[None]:
    """Record start and end of a deployment's run. `name` is the deployment's; with "", nothing is recorded."""
    if not name:
        yield
        return
    place, entry = _place(home, name, "run"), {"begun": clock.now().isoformat(), **process.mark()}
    with suppress(OSError, UserError):  # the run itself reports what is wrong with the folder
        _write(place, entry)
    try:
        yield
    finally:
        with suppress(OSError, UserError):
            _write(place, entry | {"ended": clock.now().isoformat()})


def last_run(home: Path, name: str, now: datetime) -> LastRun | None:
    """Return the last recorded run of a deployment."""
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
