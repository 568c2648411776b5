"""Tests of the two servers: they listen on loopback only, are found again, and end with all their workers."""

import json
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from running import Pair, ask, end, start_pair, start_python

from flows.servers.server_process import wait_until_healthy
from flows.servers.server_record import Server, running_servers
from flows.servers.servers import end_servers, serve, serving
from models.base.errors import UserError
from tests.support.loopback_server import HALF_ANSWERS, sending


@pytest.mark.slow
def test_both_answer_and_are_recorded(servers: Pair) -> None:
    running = running_servers(servers.home)
    assert {name: server.address for name, server in running.items()} == {
        "mlflow": servers.mlflow,
        "prefect": servers.prefect,
    }
    assert ask(f"{servers.prefect}/api/health") is True
    experiments = ask(f"{servers.mlflow}/api/2.0/mlflow/experiments/search", {"max_results": 1})["experiments"]
    assert experiments[0]["artifact_location"].startswith(str(servers.home / "mlartifacts"))


@pytest.mark.slow
def test_they_listen_on_loopback_only(servers: Pair) -> None:
    for server in running_servers(servers.home).values():
        leader = psutil.Process(server.pid)
        family = [leader, *leader.children(recursive=True)]
        heard = {
            connection.laddr.ip
            for process in family
            for connection in process.net_connections()
            if connection.status == psutil.CONN_LISTEN
        }
        assert heard == {"127.0.0.1"}


@pytest.mark.slow
def test_a_second_start_finds_the_first_and_starts_nothing(servers: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    before = (servers.home / "servers.json").read_text()
    serve(servers.home)
    words = capsys.readouterr().out
    assert servers.mlflow in words and servers.prefect in words
    assert (servers.home / "servers.json").read_text() == before


@pytest.mark.slow
def test_a_client_is_pointed_to_the_running_prefect_server(servers: Pair) -> None:
    code = "import os; import flows; print(os.environ['PREFECT_API_URL'])"
    assert start_python(code, servers.home).communicate()[0].strip() == f"{servers.prefect}/api"


@pytest.mark.slow
def test_a_port_in_use_is_one_clear_line_and_starts_nothing(servers: Pair, tmp_path: Path) -> None:
    taken = int(servers.mlflow.rsplit(":", 1)[1])
    with pytest.raises(UserError, match=rf"port {taken} is in use.*--mlflow-port"), serving(tmp_path, taken, 0):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_record_whose_process_is_another_by_now_is_not_believed(servers: Pair, tmp_path: Path) -> None:
    recorded = running_servers(servers.home)["mlflow"]
    earlier = replace(recorded, started=recorded.started - 100)
    write_record(tmp_path, earlier)
    assert running_servers(tmp_path) == {}
    assert end_servers(tmp_path) == []
    assert psutil.pid_exists(recorded.pid)


def test_a_record_of_the_dead_or_of_nonsense_is_no_record(tmp_path: Path) -> None:
    assert running_servers(tmp_path) == {}
    write_record(tmp_path, Server("mlflow", "http://127.0.0.1:1", pid=2**22 - 1, started=0.0, log=""))
    assert running_servers(tmp_path) == {}
    (tmp_path / "servers.json").write_text('{"half": ')
    assert running_servers(tmp_path) == {}


@pytest.mark.rotating(of=6)
def test_a_server_that_gives_half_answers_while_it_starts_is_asked_until_it_is_well() -> None:
    replies = [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK", *HALF_ANSWERS.values()]
    us = psutil.Process()
    with sending(lambda path: replies.pop()) as address:
        wait_until_healthy(Server("mlflow", address, us.pid, us.create_time(), log=""))
    assert replies == []


def test_a_variable_that_the_user_set_stays_and_nothing_is_written(tmp_path: Path) -> None:
    code = (
        "import os, sys; import flows; e = os.environ; "
        "print(e['HF_HUB_DISABLE_TELEMETRY'], e['RAY_USAGE_STATS_ENABLED'], 'prefect' in sys.modules)"
    )
    assert start_python(code, tmp_path, HF_HUB_DISABLE_TELEMETRY="7").communicate()[0].split() == ["7", "0", "False"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.rotating(of=12, together="another pair of servers")
@pytest.mark.slow
def test_sigterm_ends_both_with_all_their_workers(tmp_path: Path) -> None:
    pair = start_pair(tmp_path)
    holder = psutil.Process(pair.process.pid)
    family = holder.children(recursive=True)
    assert len(family) >= 2
    words = end(pair.process)
    assert (pair.process.returncode, "Traceback" in words) == (0, False), words
    assert not psutil.wait_procs(family, timeout=10)[1]
    assert not (tmp_path / "servers.json").exists()


def write_record(home: Path, server: Server) -> None:
    (home / "servers.json").write_text(json.dumps([vars(server)]))
