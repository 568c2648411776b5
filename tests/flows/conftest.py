"""Fixtures of the tests of flows: one pair of real servers and one project for the whole session."""

from collections.abc import Iterator

import pytest
import yaml
from fault_scene import Scene, open_scene
from project import Project, Ran, Unchanged, files_below, make_project
from running import Pair, end, start_pair

from tasks.tracking import store
from tests.support.fault_table import PROPERTY


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Start an MLflow and a Prefect server on a separate state folder."""
    pair = start_pair(tmp_path_factory.mktemp("home"))
    yield pair
    end(pair.process)


@pytest.fixture(scope="session")
def project(servers: Pair, tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(make_project(tmp_path_factory.mktemp("project") / "clone"), servers.prefect)


@pytest.fixture(scope="session")
def first(project: Project) -> Ran:
    """Run the recipe `tiny` on a fresh clone."""
    return project.run()


@pytest.fixture(scope="session")
def again(project: Project, first: Ran) -> Unchanged:
    """Repeat the first run with nothing changed."""
    before = files_below(first.home / "store")
    ran = project.run()
    return Unchanged(ran, files_below(first.home / "store") ^ before)


@pytest.fixture(scope="session")
def fault_rows() -> list[tuple[str, ...]]:
    """Return the list of rows of the table of faults that no report contains yet."""
    return []


@pytest.fixture(autouse=True)
def fault_row(request: pytest.FixtureRequest) -> Iterator[None]:
    """Add the row of the fault that a test injected to the report of the test."""
    rows = request.getfixturevalue("fault_rows") if "fault_rows" in request.fixturenames else []
    yield
    request.node.user_properties.extend((PROPERTY, row) for row in rows)
    rows.clear()


@pytest.fixture(scope="session")
def scene(servers: Pair, fault_rows: list[tuple[str, ...]], tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Make a project for runs with injected faults, and run it once without a fault."""
    given = {"PREFECT_API_URL": f"{servers.prefect}/api"}
    return open_scene(tmp_path_factory.mktemp("faults"), given, fault_rows.append)


@pytest.fixture
def configured(first: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    """Configure the project's store for the queries of the test."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    store.configure(first.home)


@pytest.fixture(scope="session")
def locked(project: Project, first: Ran) -> dict[str, str]:
    """Return DVC's md5 of every path that dvc.lock pins."""
    stages = yaml.safe_load((project.folder / "dvc.lock").read_text())["stages"]
    return {out["path"]: out["md5"] for stage in stages.values() for out in stage["outs"]}
