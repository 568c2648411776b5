"""Tests of a team's services, all real: ports, storage, two users of one registry, and recovery after a kill."""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from project import command, make_project, rewardflow
from running import shell, start_python
from service_folders import service_folder

from flows.servers.server_record import recorded, running_servers
from flows.services import postgres, service_set
from flows.services.place import BUCKET, NAMES, OVERRULING, USER, ServiceFolder, shell_lines
from models.base.errors import UserError
from tasks.state import storage
from tasks.state.storage import split_uri


@pytest.fixture(scope="module")
def services() -> Iterator[ServiceFolder]:
    """Start all four services, and yield their folder."""
    with service_folder() as folder:
        place = ServiceFolder(folder / "services")
        service_set.start(place, say=lambda line: None)
        yield place


def client(place: ServiceFolder, home: Path) -> dict[str, str]:
    """Return a user's environment: the variables of `rewardflow services env`, and a state folder of their own."""
    kept = {key: value for key, value in shell().items() if key not in OVERRULING}
    return {**kept, **place.environment(), "REWARDFLOW_HOME": str(home), "OMP_NUM_THREADS": "1"}


def select(place: ServiceFolder, database: str, query: str) -> list[tuple[Any, ...]]:
    """Return rows that are read directly from PostgreSQL."""
    import psycopg2

    where = {"host": "127.0.0.1", "port": place.ports()["database"], "user": USER, "dbname": database}
    with contextlib.closing(psycopg2.connect(**where, passfile=str(place.password_file))) as connection:
        cursor = connection.cursor()
        cursor.execute(query)
        return cursor.fetchall()


def keys_below(place: ServiceFolder, prefix: str) -> list[str]:
    """Return keys of the bucket, read from the S3 server."""
    import boto3

    keys = place.keys()
    given = {"aws_access_key_id": keys.access, "aws_secret_access_key": keys.secret, "region_name": "us-east-1"}
    store = boto3.session.Session(**given).client("s3", endpoint_url=place.address("store"))
    pages = store.get_paginator("list_objects_v2").paginate(Bucket=split_uri(BUCKET)[0], Prefix=prefix)
    return [item["Key"] for page in pages for item in page.get("Contents", [])]


def family(place: ServiceFolder) -> list[psutil.Process]:
    """Return the processes of all services."""
    leaders = [psutil.Process(server.pid) for server in running_servers(place.folder).values()]
    return [process for leader in leaders for process in (leader, *leader.children(recursive=True))]


def secrets_of(place: ServiceFolder) -> list[str]:
    return [place.password(), place.keys().secret]


# -------------------------------------------------------------------------------------------------- without a server


def test_secrets_are_made_once_and_are_their_owners_alone(tmp_path: Path) -> None:
    place = ServiceFolder(tmp_path)
    place.make_secrets()
    before = secrets_of(place)
    place.make_secrets()
    assert secrets_of(place) == before and all(len(secret) >= 32 for secret in before)
    assert {path.stat().st_mode & 0o777 for path in place.secrets.iterdir()} == {0o600}
    assert place.secrets.stat().st_mode & 0o777 == 0o700
    other = ServiceFolder(tmp_path / "other")
    other.make_secrets()
    assert not set(secrets_of(other)) & set(before)


def test_ports_stay_unless_another_program_has_taken_one(tmp_path: Path) -> None:
    place = ServiceFolder(tmp_path)
    assert place.choose_ports(set()) == []
    before = place.ports()
    assert sorted(before) == sorted(NAMES) and len(set(before.values())) == len(NAMES)
    assert place.choose_ports(set()) == [] and place.ports() == before
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", before["mlflow"]))
        taken.listen()
        assert place.choose_ports({"mlflow"}) == []  # the service itself uses the port
        assert place.choose_ports(set()) == ["mlflow"]
    after = place.ports()
    assert {name for name in NAMES if after[name] != before[name]} == {"mlflow"}


def test_a_shell_understands_the_lines_and_forgets_what_would_overrule_them() -> None:
    lines = shell_lines({"A": "it's", "B": "two words; $(false)"})
    asked = f"{lines}\n{sys.executable} -c 'import json, os; print(json.dumps(dict(os.environ)))'"
    given = {**os.environ, "AWS_ACCESS_KEY_ID": "another"}
    seen = json.loads(subprocess.check_output(["sh", "-eu", "-c", asked], env=given))
    assert (seen["A"], seen["B"], "AWS_ACCESS_KEY_ID" in seen) == ("it's", "two words; $(false)", False)


def test_what_was_never_started_is_said(tmp_path: Path) -> None:
    place = ServiceFolder(tmp_path / "none")
    with pytest.raises(UserError, match="not running; `rewardflow services start` starts them"):
        service_set.environment(place)
    assert service_set.stop(place) == [] and not place.folder.exists()
    with pytest.raises(UserError, match="no services were started here"):
        place.ports()


@pytest.mark.skipif(os.geteuid() != 0, reason="PostgreSQL runs as the user who asks")
def test_a_folder_that_postgresqls_user_cannot_enter_is_one_line(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    place = ServiceFolder(closed / "services")
    place.make_secrets()
    with pytest.raises(UserError, match=r"cannot enter it.*choose a folder that everybody may enter with --folder"):
        postgres.prepare(place)
    assert not postgres.folder(place).exists()


def test_stop_leaves_a_process_alone_that_only_has_the_number_of_a_service(tmp_path: Path) -> None:
    from flows.servers.server_record import Server, record

    stranger = start_python("import time; time.sleep(600)", tmp_path)
    try:
        began = psutil.Process(stranger.pid).create_time()
        record(tmp_path, {"mlflow": Server("mlflow", "http://127.0.0.1:1", stranger.pid, began - 100, "")})
        assert service_set.stop(ServiceFolder(tmp_path)) == []
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.communicate()


# ----------------------------------------------------------------------------------------- with all four services


@pytest.mark.thorough
@pytest.mark.slow
def test_all_listen_on_loopback_only_and_a_second_start_starts_nothing(services: ServiceFolder) -> None:
    listening = set()
    for process in family(services):
        with contextlib.suppress(psutil.NoSuchProcess):  # PostgreSQL's workers may have ended
            listening |= {at.laddr.ip for at in process.net_connections() if at.status == psutil.CONN_LISTEN}
    assert listening == {"127.0.0.1"}
    before, lines = recorded(services.folder), []
    assert service_set.start(services, say=lines.append) == before and lines == []
    assert set(before) == set(NAMES)


@pytest.mark.thorough
@pytest.mark.slow
def test_nobody_is_let_in_without_the_password(services: ServiceFolder, tmp_path: Path) -> None:
    import psycopg2

    (tmp_path / "none").touch(mode=0o600)
    for user in (USER, "postgres"):
        with pytest.raises(psycopg2.OperationalError, match=r"no password supplied|authentication failed"):
            psycopg2.connect(
                host="127.0.0.1",
                port=services.ports()["database"],
                user=user,
                dbname="mlflow",
                passfile=str(tmp_path / "none"),
            )
    with pytest.raises(UserError):
        storage.health(BUCKET, services.address("store"), storage.Keys("nobody", "nothing"))


@pytest.fixture(scope="module")
def users(
    services: ServiceFolder, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Path, dict[str, str], str]]:
    """Train for two users, one after the other, each with a clone and a state folder.

    Return clone, environment and output of each user. The second user pulls the data that the first one pushed.
    """
    below = tmp_path_factory.mktemp("users")
    first = make_project(below / "first")
    trained = {}
    for name, seed in (("first", 0), ("second", 5)):
        clone, environment = below / name, client(services, below / f"{name}-home")
        if name == "second":
            who = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
            for words in (["add", "dvc.lock"], [*who, "commit", "-q", "-m", "data"]):
                subprocess.run(["git", *words], cwd=first, check=True)
            subprocess.run(["git", "clone", "-q", str(first), str(clone)], check=True)
            pull = "from pathlib import Path; from tasks.data import versions; versions.pull(Path('.'), 'arithmetic')"
            subprocess.run([sys.executable, "-c", pull], cwd=clone, env=environment, check=True, capture_output=True)
        ended = subprocess.run(
            command("run", "tiny", "--set", f"seed={seed}"),
            cwd=clone, env=environment, capture_output=True, text=True, timeout=500,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stdout + ended.stderr
        trained[name] = clone, environment, ended.stdout + ended.stderr
    return trained


@pytest.mark.thorough
@pytest.mark.slow
def test_a_run_with_nothing_changed_but_the_environment_is_in_postgresql_and_s3(
    services: ServiceFolder, users: dict[str, tuple[Path, dict[str, str], str]]
) -> None:
    for _, environment, _ in users.values():
        home = Path(environment["REWARDFLOW_HOME"])
        assert not (home / "mlflow.db").exists() and not (home / "mlartifacts").exists()
    versions = select(services, "mlflow", "select name, version from model_versions order by 1, 2")
    assert versions == [(name, number) for name in ("tiny-policy", "tiny-reward-model") for number in (1, 2)]
    (runs,) = select(services, "mlflow", "select count(*) from runs where status = 'FINISHED'")
    assert runs[0] >= 20
    states = select(services, "prefect", "select state_type, count(*) from flow_run group by 1")
    assert states == [("COMPLETED", 2)]
    kept = keys_below(services, "mlflow/")
    assert sum(key.endswith(".safetensors") for key in kept) >= 4
    assert any(key.endswith("side_by_side.json") for key in kept)


@pytest.mark.thorough
@pytest.mark.slow
def test_the_second_clone_had_its_data_from_the_first_ones_push(
    services: ServiceFolder, users: dict[str, tuple[Path, dict[str, str], str]]
) -> None:
    assert keys_below(services, "data/files/md5/")
    assert re.search(r"^data +[\d.]+ +reused +725 rows", users["second"][2], flags=re.MULTILINE)
    assert (users["first"][0] / "dvc.lock").read_text() == (users["second"][0] / "dvc.lock").read_text()
    config = (users["second"][0] / ".dvc/config").read_text()
    assert "s3://" not in config and not (users["second"][0] / ".dvc/config.local").exists()


@pytest.mark.thorough
@pytest.mark.slow
def test_two_users_promote_at_once_and_leave_one_champion_whose_lineage_both_can_read(
    services: ServiceFolder, users: dict[str, tuple[Path, dict[str, str], str]]
) -> None:
    at_once = [
        subprocess.Popen(
            command("promote", str(version)),
            cwd=clone, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for version, (clone, environment, _) in enumerate(users.values(), start=1)
    ]  # fmt: skip
    said = [process.communicate(timeout=200)[0] for process in at_once]
    assert 0 in [process.returncode for process in at_once], said
    assert not any("Traceback" in words for words in said), said
    aliases = dict(select(services, "mlflow", "select alias, version from registered_model_aliases"))
    assert str(aliases["champion"]) in "12"
    if all(process.returncode == 0 for process in at_once):  # one after the other, both successful
        assert {str(aliases["champion"]), str(aliases["previous"])} == {"1", "2"}
    for version in ("1", "2"):
        printed = {
            rewardflow(clone, "lineage", version, **only_of(environment)).stdout
            for clone, environment, _ in users.values()
        }
        assert len(printed) == 1 and f"tiny-policy version {version}" in printed.pop()


def only_of(environment: dict[str, str]) -> dict[str, str]:
    """Return the variables of a user's environment that a shell does not have."""
    return {key: value for key, value in environment.items() if shell().get(key) != value}


@pytest.mark.thorough
@pytest.mark.slow
def test_no_secret_is_in_a_command_line_or_in_anything_that_was_written(
    services: ServiceFolder, users: dict[str, tuple[Path, dict[str, str], str]]
) -> None:
    secrets = secrets_of(services)
    lines = []
    for process in family(services):
        with contextlib.suppress(psutil.NoSuchProcess):  # PostgreSQL's workers may have ended
            lines.append(" ".join(process.cmdline()))
    lines += [words for _, _, words in users.values()] + [shell_lines(services.environment())]
    assert not [line for line in lines if any(secret in line for secret in secrets)]
    homes = [Path(environment["REWARDFLOW_HOME"]) for _, environment, _ in users.values()]
    written = [
        file
        for folder in (services.folder, *homes)
        for file in folder.rglob("*")
        if file.is_file() and services.secrets not in file.parents
    ]
    assert len(written) > 1000
    planted = [secret.encode() for secret in secrets]
    assert [str(file) for file in written if any(secret in file.read_bytes() for secret in planted)] == []


@pytest.mark.thorough
@pytest.mark.slow
def test_a_killed_database_and_a_killed_server_are_mended_and_nothing_is_lost(
    services: ServiceFolder, users: dict[str, tuple[Path, dict[str, str], str]]
) -> None:
    before = recorded(services.folder)
    runs = select(services, "mlflow", "select count(*) from runs")
    objects = keys_below(services, "")
    killed = [psutil.Process(before[name].pid) for name in ("database", "mlflow")]
    for process in killed:
        process.kill()
    psutil.wait_procs(killed, timeout=10)
    with pytest.raises(UserError, match="database, mlflow not running"):
        service_set.environment(services)
    lines: list[str] = []
    after = service_set.start(services, say=lines.append)
    assert after["store"] == before["store"]
    assert [line.split()[1] for line in lines] == ["database", "mlflow", "prefect"]  # Prefect used the database
    assert {name: server.address for name, server in after.items()} == {
        name: server.address for name, server in before.items()
    }
    assert select(services, "mlflow", "select count(*) from runs") == runs
    assert keys_below(services, "") == objects


@pytest.mark.thorough
@pytest.mark.slow
def test_stop_ends_all_of_them_in_order_and_a_start_has_everything_again(
    services: ServiceFolder, users: dict[str, tuple[Path, dict[str, str], str]]
) -> None:
    runs, objects = select(services, "mlflow", "select count(*) from runs"), keys_below(services, "")
    processes, before = family(services), services.environment()
    assert sorted(service_set.stop(services)) == sorted(NAMES)
    assert not psutil.wait_procs(processes, timeout=10)[1]
    assert "shut down" in (services.folder / "logs/database.log").read_text().splitlines()[-1]
    assert recorded(services.folder) == {} and service_set.stop(services) == []
    service_set.start(services, say=lambda line: None)
    assert services.environment() == before
    assert select(services, "mlflow", "select count(*) from runs") == runs
    assert keys_below(services, "") == objects


@pytest.mark.thorough
@pytest.mark.slow
def test_a_server_that_cannot_start_is_one_line_and_leaves_none_behind(
    services: ServiceFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    service_set.stop(services)
    whole = ServiceFolder.database_uri
    monkeypatch.setattr(ServiceFolder, "database_uri", lambda self, driver, name: whole(self, driver, f"no-{name}"))
    with pytest.raises(UserError, match=r"the mlflow server ended while starting|did not answer within") as error:
        service_set.start(services, say=lambda line: None)
    assert "\n" not in str(error.value)
    assert recorded(services.folder) == {}
