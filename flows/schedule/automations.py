"""Automations of Prefect's server that report a crash, a time-out or silence when no process of ours is alive.

They post to the same addresses as our own messages. They refer to deployments of prefect.yaml by their ids on that
server, and are updated by name each time they are set up. An address is kept in a Webhook block, not in an automation;
Prefect encrypts the block with a key in the same database.

    no heartbeat      a run whose process is gone, with its machine or its worker, becomes Crashed
    crashed           a run became Crashed or TimedOut
    NAME is silent    no run of a deployment started for the longest pause of its schedule, plus a grace period
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from cronsim import CronSim

from flows.schedule.deployments import Deployment
from flows.schedule.silence import GRACE, Schedules
from models.base.errors import UserError
from tasks.host import clock
from tasks.host.plain_address import required
from tasks.messages.receivers import BLOCK, Receiver, receivers

if TYPE_CHECKING:
    from uuid import UUID

    from prefect.events.schemas.automations import AutomationCore

OURS = "rewardflow: "
"""Prefix of the names of our automations."""
BEATS = 3
"""Heartbeat intervals within which at least one heartbeat must arrive, as in Prefect's guide. A run's last heartbeat
falls somewhere within such a period, so a dead run is detected after three to six intervals.
"""
AHEAD = 500
"""Number of future runs of a schedule that are examined for its longest pause."""


def automations_of(
    deployments: Mapping[str, tuple[UUID, Schedules]],
    blocks: Sequence[UUID],
    address: str,
    heartbeat: timedelta,
    grace: timedelta = GRACE,
) -> list[AutomationCore]:
    """Build all automations for the deployments: name -> id on the server and schedules.

    Args:
        blocks: Webhook blocks, one for each address that receives messages.
        address: address of the server's pages.
        heartbeat: interval of a run's heartbeats.
        grace: how much longer than its longest pause a schedule may be silent.
    """
    from prefect.client.schemas.objects import StateType
    from prefect.events.actions import CallWebhook, ChangeFlowRunState
    from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture

    ids = [f"prefect.deployment.{deployment_id}" for deployment_id, _ in deployments.values()]
    runs: dict[str, Any] = {
        "match": {"prefect.resource.id": "prefect.flow-run.*"},
        "match_related": {"prefect.resource.role": "deployment", "prefect.resource.id": ids},
    }
    ended = {f"prefect.flow-run.{state}" for state in ("Completed", "Failed", "Cancelled", "Crashed", "TimedOut")}
    beat = "prefect.flow-run.heartbeat"
    automations = [
        AutomationCore(
            name=f"{OURS}no heartbeat",
            description="A run whose process is gone becomes Crashed, which frees its place and is reported.",
            trigger=EventTrigger(
                **runs,
                after={beat},
                expect={beat, *ended},
                for_each={"prefect.resource.id"},
                posture=Posture.Proactive,
                threshold=1,
                within=heartbeat * BEATS,
            ),
            actions=[
                ChangeFlowRunState(
                    name=None,
                    force=False,
                    state=StateType.CRASHED,
                    message="Its process gave no sign of life: it was killed, or is cut off.",
                )
            ],
        ),
        AutomationCore(
            name=f"{OURS}crashed",
            description="A run became Crashed or TimedOut: a message is sent.",
            trigger=EventTrigger(
                **runs,
                expect={"prefect.flow-run.Crashed", "prefect.flow-run.TimedOut"},
                for_each={"prefect.resource.id"},
                posture=Posture.Reactive,
                threshold=1,
            ),
            actions=[CallWebhook(block_document_id=block, payload=_crash_message(address)) for block in blocks],
        ),
    ]
    for name, (deployment_id, schedules) in deployments.items():
        if not schedules:
            continue
        within = longest_pause(schedules, clock.now()) + grace
        link = f"{address}/deployments/deployment/{deployment_id}"
        automations.append(
            AutomationCore(
                name=f"{OURS}{name} is silent",
                description=f"No run of {name} began within {within}: a message is sent.",
                trigger=EventTrigger(
                    match=runs["match"],
                    match_related={
                        "prefect.resource.role": "deployment",
                        "prefect.resource.id": f"prefect.deployment.{deployment_id}",
                    },
                    expect={"prefect.flow-run.Running"},
                    posture=Posture.Proactive,
                    threshold=1,
                    within=within,
                ),
                actions=[
                    CallWebhook(block_document_id=block, payload=_silence_message(name, within, link))
                    for block in blocks
                ],
            )
        )
    return automations


def longest_pause(schedules: Schedules, now: datetime) -> timedelta:
    """Return the longest time between two consecutive runs, among the next `AHEAD` runs of each schedule."""
    due_times = [list(islice(CronSim(cron, now.astimezone(ZoneInfo(zone))), AHEAD)) for cron, zone in schedules]
    until = min(schedule_times[-1] for schedule_times in due_times)  # the runs of a denser schedule end earlier
    times = sorted(
        {time.astimezone(ZoneInfo("UTC")) for schedule_times in due_times for time in schedule_times if time <= until}
    )
    return max(after - before for before, after in pairwise(times))


def create_automations(deployments: Sequence[Deployment], grace: timedelta = GRACE) -> list[str]:
    """Create the automations on Prefect's server, or update them. Returns their names; none without receivers.

    Args:
        grace: see `automations_of`.

    Raises:
        UserError: an address is invalid, or the server knows none of the deployments.
    """
    from prefect.client.orchestration import get_client
    from prefect.settings import get_current_settings

    targets = receivers()
    if not targets or not deployments:
        return []
    settings = get_current_settings()
    heartbeat = timedelta(seconds=settings.flows.heartbeat_frequency or 180)
    with get_client(sync_client=True) as client:
        known_deployments = _known_deployments(client, deployments)
        blocks = [_save_block(number, receiver) for number, receiver in enumerate(targets, 1)]
        address = str(client.api_url).rstrip("/").removesuffix("/api")
        automations = automations_of(known_deployments, blocks, address, heartbeat, grace)
        existing = {entry.name: entry for entry in client.read_automations() if entry.name.startswith(OURS)}
        for automation in automations:
            if (previous := existing.pop(automation.name, None)) is not None and previous.id is not None:
                client.update_automation(previous.id, automation)
            else:
                client.create_automation(automation)
        for obsolete in existing.values():  # their deployments are gone
            if obsolete.id is not None:
                client.delete_automation(obsolete.id)
    return [automation.name for automation in automations]


def pause_automations() -> None:
    """Pause the automations that report silence, because the schedule was ended on purpose; `create_automations`
    resumes them."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        for automation in client.read_automations():
            if re.fullmatch(rf"{OURS}.* is silent", automation.name) and automation.id is not None:
                client.pause_automation(automation.id)


def remove_automations() -> list[str]:
    """Remove the automations and the blocks with the addresses. Returns the names of the automations."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        removed = [entry for entry in client.read_automations() if entry.name.startswith(OURS)]
        for automation in removed:
            assert automation.id is not None, "the server gave it"
            client.delete_automation(automation.id)
        for block in client.read_block_documents():
            if re.fullmatch(rf"{BLOCK}-\d+", block.name or ""):
                client.delete_block_document(block.id)
    return [automation.name for automation in removed]


def require_lasting_server() -> None:
    """Check that Prefect's server outlives the command; automations on a temporary server would be lost with it.

    Raises:
        UserError: no other server is configured or runs, or the configured address contains a password.
    """
    from prefect.settings import PREFECT_API_URL

    if not required("PREFECT_API_URL", str(PREFECT_API_URL.value() or "")):
        raise UserError(
            "automations need a lasting Prefect server: set PREFECT_API_URL, or start one with `rewardflow ui`"
        )


def _save_block(number: int, receiver: Receiver) -> UUID:
    from prefect.blocks.webhook import Webhook
    from pydantic import SecretStr

    block = Webhook(url=SecretStr(receiver.url), headers={"Content-Type": "application/json"})  # type: ignore[arg-type]
    saved_id: Any = block.save(f"{BLOCK}-{number}", overwrite=True)
    block_id: UUID = saved_id
    return block_id


def _known_deployments(client: Any, deployments: Sequence[Deployment]) -> dict[str, tuple[UUID, Schedules]]:
    """Return the deployments that the server has, by name."""
    from prefect.client.schemas.filters import DeploymentFilter

    names = [deployment.name for deployment in deployments]
    server_deployments = client.read_deployments(
        deployment_filter=DeploymentFilter.model_validate({"name": {"any_": names}})
    )
    ids = {(entry.name, (entry.entrypoint or "").rpartition("/")[2]): entry.id for entry in server_deployments}
    known: dict[str, tuple[UUID, Schedules]] = {
        deployment.name: (ids[key], [(schedule.cron, schedule.timezone) for schedule in deployment.schedules])
        for deployment in deployments
        if (key := (deployment.name, deployment.entrypoint.rpartition("/")[2])) in ids
    }
    if not known:
        raise UserError("Prefect's server knows none of the deployments of prefect.yaml: deploy or serve them first")
    return known


def _crash_message(address: str) -> str:
    """Return the message as a template that Prefect fills in: JSON with the fields of `tasks.messages.event.Event`."""
    link = f'"{address}/runs/flow-run/" ~ flow_run.id'
    text = 'flow_run.name ~ " of " ~ deployment.name ~ " is " ~ flow_run.state.name ~ ": " ~ '
    text += f'(flow_run.state.message or "no reason is known") ~ " " ~ {link}'
    return (
        f'{{"kind": "stopped", "text": {{{{ ({text}) | tojson }}}}, "link": {{{{ ({link}) | tojson }}}}, '
        '"at": {{ (event.occurred | string) | tojson }}, "event_id": {{ ("prefect-" ~ event.id) | tojson }}}'
    )


def _silence_message(name: str, within: timedelta, link: str) -> str:
    """Return the message as JSON; Prefect fills in the time and an id."""
    text = f"{name} is silent: no run began within {within} {link}"
    message = json.dumps({"kind": "silent", "text": text, "link": link})
    return message[:-1] + ', "at": {{ (firing.triggered | string) | tojson }}, "event_id": "prefect-{{ firing.id }}"}'
