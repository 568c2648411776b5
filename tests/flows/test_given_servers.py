"""Tests of servers that environment variables name: they are used and not ended. Our own pages work on any port."""

from pathlib import Path

import pytest
from running import Pair, ask, end, free_port, start_python, wait_for

from flows.servers.server_record import running_servers
from flows.servers.servers import end_servers, given_servers, page_address, serving
from models.base.errors import UserError
from tests.support.loopback_server import HALF_ANSWERS, sending

TOY_FLOW = """
from prefect import flow

@flow
def rest(recipe: str = "") -> str:
    return recipe
"""
TOY_DEPLOYMENTS = """
deployments:
  - name: on-the-users-server
    entrypoint: toy.py:rest
    schedules: [{cron: "0 2 1 1 *"}]
"""


@pytest.fixture
def named(servers: Pair, monkeypatch: pytest.MonkeyPatch) -> Pair:
    """Name the session's servers in the environment, as a user does with servers of their own."""
    monkeypatch.setenv("PREFECT_API_URL", f"{servers.prefect}/api")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", servers.mlflow)
    return servers


@pytest.mark.rotating(of=6)
@pytest.mark.slow
def test_the_prefect_page_asks_the_port_that_its_server_listens_on(servers: Pair) -> None:
    assert ask(f"{servers.prefect}/ui-settings")["api_url"] == f"{servers.prefect}/api"


@pytest.mark.slow
def test_servers_that_the_user_names_are_used_and_none_is_started(named: Pair, tmp_path: Path) -> None:
    with serving(tmp_path) as both:
        assert {name: server.address for name, server in both.items()} == {
            "mlflow": named.mlflow,
            "prefect": named.prefect,
        }
        assert running_servers(tmp_path) == {} and not (tmp_path / "logs").exists()
        assert end_servers(tmp_path) == []
    assert ask(f"{named.prefect}/api/health") is True  # the user's server still runs
    assert page_address(tmp_path, "mlflow") == named.mlflow


@pytest.mark.slow
def test_our_own_server_named_by_our_own_command_is_no_wish_of_the_user(named: Pair) -> None:
    assert given_servers(named.home) == {}


def test_a_named_server_that_does_not_answer_is_one_line_that_names_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{free_port()}/api")
    with pytest.raises(UserError, match=r"PREFECT_API_URL names http://127.0.0.1:.*does not answer"), serving(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["another protocol", "no byte", "a line too long"])
def test_a_named_server_that_speaks_something_else_is_one_line_that_names_the_variable(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sending(lambda path: HALF_ANSWERS[name]) as address:
        monkeypatch.setenv("PREFECT_API_URL", f"{address}/api")
        says = pytest.raises(UserError, match=r"^PREFECT_API_URL names http://127.0.0.1:.*does not answer \(.+\)")
        with says, serving(tmp_path):
            pass


@pytest.mark.rotating(of=12, together="named servers")
@pytest.mark.slow
def test_the_schedule_is_served_on_the_prefect_server_that_the_user_names(named: Pair, tmp_path: Path) -> None:
    (tmp_path / "toy.py").write_text(TOY_FLOW)
    (tmp_path / "prefect.yaml").write_text(TOY_DEPLOYMENTS)
    code = (
        "from pathlib import Path; from flows.runtime.environment import state_folder; "
        "from flows.schedule.schedule import serve_schedule; "
        "serve_schedule(Path('prefect.yaml').absolute(), state_folder())"
    )
    given = {"PREFECT_API_URL": f"{named.prefect}/api", "MLFLOW_TRACKING_URI": named.mlflow}
    process = start_python(code, tmp_path, **given)
    try:
        wait_for(
            "the deployment on the user's server",
            lambda: [
                row
                for row in ask(f"{named.prefect}/api/deployments/filter", {})
                if row["name"] == "on-the-users-server" and not row["paused"]
            ],
            process,
        )
        assert not (tmp_path / "servers.json").exists()
    finally:
        end(process)
