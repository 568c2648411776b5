"""Real failures of services during a run: PostgreSQL, the S3 server and MLflow are killed. See test_faults.py."""

import time
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest
from fault_scene import Scene, line_in, open_scene, timed
from running import wait_for
from service_folders import service_folder
from test_services import client, select

from flows.servers.server_record import recorded
from flows.services import service_set
from flows.services.place import ServiceFolder

pytestmark = [pytest.mark.thorough, pytest.mark.slow, pytest.mark.faults]


@pytest.fixture(scope="module")
def services() -> Iterator[ServiceFolder]:
    """Start all four services, and yield their folder."""
    with service_folder() as folder:
        place = ServiceFolder(folder / "services")
        service_set.start(place, say=lambda line: None)
        yield place


@pytest.fixture(scope="module")
def served(
    services: ServiceFolder, fault_rows: list[tuple[str, ...]], tmp_path_factory: pytest.TempPathFactory
) -> Scene:
    """Open a project whose runs use the services."""
    below = tmp_path_factory.mktemp("served")
    given = client(services, below)
    extra = {name: given[name] for name in services.environment()}
    return open_scene(below, extra, fault_rows.append, lambda query: select(services, "mlflow", query))


@pytest.mark.parametrize(
    ("name", "seconds", "pattern", "when"),
    [
        ("mlflow", 60, "store/fine_tune/*/checkpoints/round_000002", "in round 3"),
        ("database", 30, "store/fine_tune/*/checkpoints/round_000002", "in round 3"),
        ("store", 60, "store/fine_tune/*/checkpoints/round_000002", "in round 3"),
        ("store", 20, "store/fine_tune/*/policy", "during an upload"),
    ],
)
def test_a_service_that_is_away_costs_time_and_nothing_else(
    services: ServiceFolder, served: Scene, name: str, seconds: int, pattern: str, when: str
) -> None:
    home, began = served.home(), time.monotonic()
    with served.running(home, REWARD_PAUSE="1") as disturbed:
        wait_for(when, lambda: list(home.glob(pattern)), disturbed)
        gone = psutil.Process(recorded(services.folder)[name].pid)
        for process in [*gone.children(recursive=True), gone]:
            with suppress(psutil.NoSuchProcess):  # PostgreSQL's workers may have ended
                process.kill()
        psutil.wait_procs([gone], timeout=10)
        time.sleep(seconds)
        service_set.start(services, say=lambda line: None)
        code = disturbed.wait(timeout=400)
    line = ""
    if code:
        line = line_in(served.log(home).read_text(), "^error: ")
        served.finish(home)
    called = {"mlflow": "the MLflow server", "database": "PostgreSQL", "store": "the S3 server"}[name]
    served.same_as_undisturbed(f"{called} away for {seconds} s {when}", home, line, timed(began))
