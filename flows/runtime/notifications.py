"""Notifications of a flow to people, sent through the outbox in its state folder; a failure never stops the flow."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from models.base.errors import UserError
from tasks.host import clock
from tasks.messages.event import Event, Kind, identity
from tasks.messages.outbox import Outbox, Passed
from tasks.messages.receivers import receivers

if TYPE_CHECKING:
    from tasks.gate.champion_watch import NightlyResult
    from tasks.steps.promote import Promotion
    from tasks.tracking.registry import VersionInfo
    from tasks.tracking.runs import DeadRun

_LOG = logging.getLogger(__name__)

MINUTE = 60.0


def notify(home: Path, kind: Kind, text: str, facts: Mapping[str, object], link: str = "") -> None:
    """Store an event and try to send all events that wait. A failure is logged as a warning.

    Args:
        home: state folder.
        text: one sentence.
        facts: identify the event: events with equal facts are sent once.
        link: address of the page with details.
    """
    try:
        to = receivers()
        if not to:
            return
        outbox = Outbox(home)
        outbox.put(Event(kind=kind, text=" ".join(text.split()), link=link, event_id=identity(kind, facts)), to)
        warn(outbox.deliver(to))
    except (OSError, UserError) as error:
        _LOG.warning("message not sent (%s): %s", text, error)


def notify_decision(home: Path, model: str, promotion: Promotion, link: str) -> None:
    """Send the gate's decision on a candidate; not `kept`, which changes nothing, nor a decision of an earlier run."""
    decision = promotion.decision
    if decision != "kept" and not promotion.reused:
        text = f"{model} version {promotion.version} {decision}: {promotion.reason}"
        notify(home, decision, text, {"model": model, "version": promotion.version, "reason": promotion.reason}, link)


def notify_champion(home: Path, champion: VersionInfo, data: str, watched: NightlyResult, link: str) -> None:
    """Send the results of a nightly evaluation of the champion.

    A worse champion is reported every night. Drifted inputs are reported once, as they do not change until the data or
    the champion change.

    Args:
        data: hash of the data version.
    """
    named, facts = f"{champion.name} version {champion.version}", {"model": champion.name, "version": champion.version}
    if watched.worse:
        night = clock.now().date().isoformat()
        notify(home, "worse", f"{named} got worse: {watched.worse}", facts | {"night": night}, link)
    if watched.drifted:
        drifted = [drift.name for drift in watched.drifts if drift.state == "drifted"]
        notify(
            home,
            "drifted",
            f"inputs of {named} drifted: {watched.drifted}",
            facts | {"data": data, "features": drifted},
            link,
        )


def notify_killed(home: Path, run: DeadRun, link: str) -> None:
    """Send, once, that a run was killed; the next run that opens the folder notices this."""
    text = f"{run.name} stopped: its process was killed, or its machine went down"
    notify(home, "stopped", text, {"run": run.run_id}, link)


@dataclass
class Stoppable:
    """State of a running flow, for the message that it was stopped."""

    what: str
    run: str = ""
    """Id of its MLflow run; empty before the run is opened."""
    link: str = ""


@contextmanager
def notify_when_stopped(home: Path, what: str, run: str = "", link: str = "") -> Iterator[Stoppable]:
    """Send a message if an error stops the flow; not after Ctrl-C or SIGTERM, as its sender knows about it."""
    flow = Stoppable(what, run, link)
    try:
        yield flow
    except Exception as error:
        reason = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        facts = {"run": flow.run} if flow.run else {"what": flow.what, "reason": reason, "at": clock.stamp()}
        notify(home, "stopped", f"{flow.what} stopped: {reason}", facts, flow.link)
        raise


@contextmanager
def sending(home: Path, every: float = MINUTE) -> Iterator[None]:
    """Send waiting messages again and again, while a schedule is served."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(every):
            try:
                Outbox(home).deliver(receivers())
            except (OSError, UserError) as error:
                _LOG.warning("messages wait: %s", error)

    thread = threading.Thread(target=work, name="messages", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()


def warn(passed: Passed) -> None:
    """Log a warning for each message that a receiver did not take."""
    for failure in passed.failures:
        _LOG.warning("a message waits: %s; `rewardflow messages` lists them", failure)
