"""Server of the deployments in prefect.yaml: it runs them on their schedules, from one process.

prefect.yaml is the single source: what `prefect deploy` would give to a work pool is served here unchanged, except for
the work pool. Prefect reads its settings once, at import: it is imported when the server's address is known.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from flows.runtime.environment import MLFLOW_PORT, PREFECT_PORT
from flows.runtime.notifications import sending
from flows.schedule import automations
from flows.schedule.approvals import check_registry
from flows.schedule.deployments import Deployment, first_problem, read_deployments, schedules_of
from flows.schedule.silence import silent, watching
from flows.servers.server_record import running_servers
from flows.servers.servers import addresses, given_servers, servers_end_with_us, serving
from flows.servers.temporary_server import is_temporary
from models.base.errors import UserError
from tasks.compute.gpu_place import limit_name
from tasks.host import clock
from tasks.tracking import store

if TYPE_CHECKING:
    from uuid import UUID

    from prefect.deployments.runner import RunnerDeployment


_LOG = logging.getLogger(__name__)

CATCH_UP = "catch-up"
"""Tag of a deployment that, when it is served again, starts one run if any runs were missed."""


def create_gpu_limit() -> None:
    """Create this host's concurrency limit, with one slot, on the current Prefect server; an existing one is kept.

    A temporary server is an exception, as only this process uses it. It keeps the holder of a slot in memory, which is
    lost with a killed run, but the count stays in its database. No other process can hold the slot, so it is freed
    here.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate, GlobalConcurrencyLimitUpdate
    from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound

    with get_client(sync_client=True) as client:
        try:  # read first: the server logs a traceback if an existing limit is created
            client.read_global_concurrency_limit_by_name(limit_name())
        except ObjectNotFound:
            with contextlib.suppress(ObjectAlreadyExists):
                client.create_global_concurrency_limit(GlobalConcurrencyLimitCreate(name=limit_name(), limit=1))
        else:
            if is_temporary():
                client.update_global_concurrency_limit(limit_name(), GlobalConcurrencyLimitUpdate(active_slots=0))


def serve_schedule(path: Path, home: Path, mlflow_port: int = MLFLOW_PORT, prefect_port: int = PREFECT_PORT) -> None:
    """Serve the deployments of `path` until Ctrl-C or SIGTERM. Servers that do not run are started, and ended with it.

    At the end the schedules are paused, so that no runs pile up while none are served; the next start resumes them.

    Raises:
        UserError: as in `read_deployments` and `serving`; another process already serves the schedule of `home`.
    """
    path = path.absolute()
    deployments = read_deployments(path)
    lasting = "prefect" in {**running_servers(home), **given_servers(home)}  # it outlives this process
    with servers_end_with_us(), _only_one(home), serving(home, mlflow_port, prefect_port) as servers:
        if not servers["prefect"].given:
            os.environ["PREFECT_API_URL"] = f"{servers['prefect'].address}/api"
        os.chdir(path.parent)  # entrypoints and recipe paths are relative to this folder
        served = [_to_prefect(deployment) for deployment in deployments]
        missed = {it.deployment for it in silent(home, schedules_of(deployments), clock.now())}
        late = [it for it in deployments if CATCH_UP in it.tags and it.name in missed]
        create_gpu_limit()
        _settle(served, "its schedule's process was gone when the schedule was started again", pause=False)
        _skip_late(served)
        print(f"\n{addresses(servers)}\n")
        for deployment in deployments:
            when = ", ".join(f"{schedule.cron} {schedule.timezone}" for schedule in deployment.schedules) or (
                "at an event" if deployment.triggers else "by hand"
            )
            print(f"  {deployment.name:<22} {when:<18} {deployment.entrypoint}")
        print("\nCtrl-C pauses the schedules and ends what was started here.", flush=True)
        try:
            store.configure_here(home)
            with (
                sending(home),
                check_registry(),
                watching(home, schedules_of(deployments), f"{servers['prefect'].address}/deployments"),
            ):
                _serve(served, {it.name for it in late}, deployments if lasting else ())
        finally:
            _settle(served, "the schedule was ended", pause=True)
            if lasting:
                automations.pause_automations()


@contextlib.contextmanager
def _only_one(home: Path) -> Iterator[None]:
    home.mkdir(parents=True, exist_ok=True)
    with (home / "schedule.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"the schedule of {home} is being served already by another process") from None
        yield


def _to_prefect(deployment: Deployment) -> RunnerDeployment:
    from prefect.client.schemas.objects import ConcurrencyLimitConfig
    from prefect.deployments.runner import RunnerDeployment
    from prefect.events import DeploymentTriggerTypes
    from prefect.schedules import Cron
    from pydantic import TypeAdapter, ValidationError

    limit = deployment.concurrency_limit
    try:
        triggers: Any = TypeAdapter(list[DeploymentTriggerTypes]).validate_python(deployment.triggers)
    except ValidationError as error:
        problem = first_problem(error, above=("triggers",))
        raise UserError(f"prefect.yaml: {deployment.name}: {problem}") from None
    try:
        return RunnerDeployment.from_entrypoint(
            deployment.entrypoint,
            name=deployment.name,
            description=deployment.description or None,
            parameters=deployment.parameters,
            schedules=[Cron(schedule.cron, timezone=schedule.timezone) for schedule in deployment.schedules],
            triggers=triggers,
            concurrency_limit=ConcurrencyLimitConfig(**limit.model_dump()) if limit else None,
            tags=deployment.tags,
            enforce_parameter_schema=deployment.enforce_parameter_schema,
            paused=False,  # an earlier end of this process paused them
        )
    except (ValueError, AttributeError) as error:
        raise UserError(f"prefect.yaml: {deployment.name}: {' '.join(str(error).split())}") from error


def _serve(deployments: list[RunnerDeployment], late: Container[str], watched: Sequence[Deployment]) -> None:
    """Serve until Ctrl-C or SIGTERM.

    Args:
        late: deployments of which one run starts at once.
        watched: deployments that Prefect's server watches with automations once they exist.
    """
    from prefect.client.orchestration import get_client
    from prefect.exceptions import PrefectHTTPStatusError
    from prefect.runner import Runner

    class OrderlyRunner(Runner):
        """Prefect's runner, which SIGTERM ends like Ctrl-C; its own handler drops the work in progress."""

        def handle_sigterm(self, *_: Any, **__: Any) -> None:
            signal.raise_signal(signal.SIGINT)

    # Flow runs end with the runner; it logs an error if they have ended before it looks for them.
    logging.getLogger("prefect.runner.process_manager").setLevel(logging.CRITICAL)
    runner = OrderlyRunner(name="rewardflow", pause_on_shutdown=False)
    for deployment in deployments:
        known = cast("UUID", runner.add_deployment(deployment))
        if deployment.name in late:
            with get_client(sync_client=True) as client:
                client.create_flow_run_from_deployment(known, name=f"{deployment.name}, which was missed")
    try:
        automations.create_automations(watched)
    except (UserError, PrefectHTTPStatusError) as error:
        _LOG.warning("Prefect's server will not report crashes or missing runs: %s", error)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which lets asyncio end its tasks in order
    try:
        asyncio.run(runner.start())
    except KeyboardInterrupt:
        pass
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


def _skip_late(deployments: list[RunnerDeployment]) -> None:
    """Cancel runs that came due while they were not served; deployments tagged `catch-up` start one run instead."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import DeploymentFilter, FlowRunFilter
    from prefect.client.schemas.objects import StateType
    from prefect.exceptions import ObjectNotFound
    from prefect.states import Cancelled

    due = FlowRunFilter.model_validate(
        {"state": {"type": {"any_": [StateType.SCHEDULED]}}, "expected_start_time": {"before_": clock.now()}}
    )
    with get_client(sync_client=True) as client:
        for deployment in deployments:
            try:
                known = client.read_deployment_by_name(f"{deployment.flow_name}/{deployment.name}")
            except ObjectNotFound:
                continue  # its first time
            only = DeploymentFilter.model_validate({"id": {"any_": [known.id]}})
            late = client.read_flow_runs(flow_run_filter=due, deployment_filter=only)
            for run in (run for run in late if run.auto_scheduled):  # runs that a person started keep their place
                client.set_flow_run_state(run.id, Cancelled(message="It came due while it was not served."), force=True)


def _settle(deployments: list[RunnerDeployment], reason: str, pause: bool) -> None:
    """Mark runs without a process as crashed, which frees their slots, and pause the schedules if `pause`."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import DeploymentFilter, FlowRunFilter
    from prefect.client.schemas.objects import StateType
    from prefect.exceptions import ObjectNotFound
    from prefect.states import Crashed

    unfinished = FlowRunFilter.model_validate(
        {"state": {"type": {"any_": [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]}}}
    )
    with get_client(sync_client=True) as client:
        for deployment in deployments:
            try:
                known = client.read_deployment_by_name(f"{deployment.flow_name}/{deployment.name}")
            except ObjectNotFound:
                continue  # its first time
            if pause:
                client.pause_deployment(known.id)
            only = DeploymentFilter.model_validate({"id": {"any_": [known.id]}})
            for run in client.read_flow_runs(flow_run_filter=unfinished, deployment_filter=only):
                client.set_flow_run_state(run.id, Crashed(message=f"Ended from outside: {reason}."), force=True)
