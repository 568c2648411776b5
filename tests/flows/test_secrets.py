"""Secrets of the environment do not appear in files, output or command lines of a run."""

import logging
import re
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow.parquet as parquet
import pytest
from project import Project, command, environment, rewardflow
from running import ROOT

from flows.doctor import diagnose
from flows.servers import servers
from models.base.errors import UserError
from tasks.tracking import store

PLANTED = {
    "AWS_ACCESS_KEY_ID": "PLANTEDACCESSKEY0001",
    "AWS_SECRET_ACCESS_KEY": "planted-secret-key-0002",
    "HF_TOKEN": "hf_planted0003",
    "MLFLOW_TRACKING_PASSWORD": "planted-password-0004",
    "OPENAI_API_KEY": "sk-planted-0005",
    "PREFECT_API_KEY": "pnu_planted0006",
    "REWARDFLOW_NOTIFY_URL": "http://127.0.0.1:9/hooks/planted-token-0007",
    "WANDB_API_KEY": "planted-0008",
}
IN_ADDRESSES = {
    "MLFLOW_TRACKING_URI": "http://ann:planted-word-0009@127.0.0.1:9",
    "PREFECT_API_URL": "http://ann:planted-word-0009@127.0.0.1:9/api",
}
"""Addresses that are refused, because addresses appear in logs, messages and pages."""
DATABASE = "postgresql://ann:planted-word-0009@127.0.0.1:9/mlflow?password=planted-word-0009"
SECRETS = [value.rpartition("/")[2] for value in PLANTED.values()] + ["planted-word-0009"]


def contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield the content of every file below a folder; tables also without compression."""
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            yield file, file.read_bytes()
            if file.suffix == ".parquet":
                yield file, str(parquet.read_table(file).to_pylist()).encode()


def leaks(content: bytes) -> list[str]:
    return [secret for secret in SECRETS if secret.encode() in content]


def test_a_leak_would_be_seen(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(f"POST {PLANTED['REWARDFLOW_NOTIFY_URL']}")
    assert [leaks(content) for _, content in contents(tmp_path)] == [["planted-token-0007"]]


def test_every_test_that_the_page_on_security_names_is_there() -> None:
    named = re.findall(r"`((?:tests|docs)/[^`]+)`", (ROOT / "SECURITY.md").read_text())
    assert len(named) > 8 and [name for name in named if not (ROOT / name).is_file()] == []


@pytest.mark.slow
@pytest.mark.rotating(of=8)
@pytest.mark.parametrize(
    ("variable", "arguments"),
    [
        ("MLFLOW_TRACKING_URI", ("models",)),
        ("MLFLOW_TRACKING_URI", ("run", str(ROOT / "recipes/arithmetic.yaml"))),
        ("PREFECT_API_URL", ("ui",)),
        ("PREFECT_API_URL", ("run", str(ROOT / "recipes/arithmetic.yaml"))),
        ("PREFECT_API_URL", ("automations",)),
    ],
)
def test_a_password_in_the_address_of_a_server_is_refused_in_one_line_and_is_nowhere(
    variable: str, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    extra = {"PYTHONPATH": str(ROOT), "REWARDFLOW_HOME": str(home), "REWARDFLOW_NOTIFY_URL": "http://127.0.0.1:9/hook"}
    ended = rewardflow(tmp_path, *arguments, **extra, **{variable: IN_ADDRESSES[variable]})
    assert ended.returncode == 1 and ended.stderr.splitlines()[-1].startswith(f"error: {variable} must be an address")
    assert {"MLFLOW_TRACKING_URI": "MLFLOW_TRACKING_PASSWORD", "PREFECT_API_URL": "PREFECT_API_AUTH_STRING"}[
        variable
    ] in ended.stderr
    assert not leaks((ended.stdout + ended.stderr).encode())
    assert not [(file, leaked) for file, content in contents(tmp_path) if (leaked := leaks(content))]


@pytest.mark.parametrize("variable", IN_ADDRESSES)
def test_the_doctor_finds_a_password_in_an_address_and_does_not_show_it(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv(variable, IN_ADDRESSES[variable])
    findings = diagnose(ROOT, tmp_path)
    assert [finding for finding in findings if not finding.ok and finding.mend.startswith(f"{variable} must be")]
    assert not leaks(str(findings).encode())


def test_the_password_of_a_database_that_the_user_names_is_in_no_message_and_no_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    launched = {}

    def launch(name, line, port, log, given, cwd):
        launched[name] = (line, given)
        raise UserError("it is not started")

    monkeypatch.setattr(servers, "launch", launch)
    monkeypatch.setattr(store, "_store", store.Store(DATABASE, tmp_path))
    monkeypatch.setattr(store, "PATIENCE", 10.0)
    monkeypatch.setattr(store.time, "sleep", lambda seconds: None)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", DATABASE)

    def away() -> None:
        raise ConnectionError("refused")

    logged = logging.getLogger("rewardflow.tracking")
    monkeypatch.setattr(logged, "disabled", False)
    logged.addHandler(caplog.handler)
    try:
        with pytest.raises(UserError) as caught:
            store.patiently(away)
    finally:
        logged.removeHandler(caplog.handler)
    with pytest.raises(UserError, match="not started"):
        servers._launch("mlflow", 5000, tmp_path)
    line, given = launched["mlflow"]
    assert given["MLFLOW_BACKEND_STORE_URI"] == DATABASE
    assert "trying again" in caplog.text and "postgresql://***@127.0.0.1:9/mlflow" in str(caught.value)
    assert not leaks(f"{line} {caught.value} {caplog.text}".encode())


@pytest.mark.thorough
def test_no_secret_of_the_environment_is_in_what_a_run_writes_says_or_has_in_a_command_line(
    project: Project, tmp_path: Path
) -> None:
    """The test searches the state folder, the checkout, the output and the command lines of all processes."""
    home, log = tmp_path / "home", tmp_path / "log"
    extra = {**project.settings(home, own_server=True), **PLANTED}
    with log.open("w") as words:
        running = psutil.Popen(
            command("run", "tiny", "--set", "engine.name=auto"),
            cwd=project.folder,
            env=environment(**extra),
            stdout=words,
            stderr=words,
        )
        lines: set[str] = set()
        while running.poll() is None:
            for process in [running, *running.children(recursive=True)]:
                try:
                    lines.add(" ".join(process.cmdline()))
                except psutil.Error:
                    continue
            time.sleep(0.3)
    said = log.read_text()
    assert running.returncode == 0, said
    assert re.search(r"/runs/[0-9a-f]{32}", said) and len(lines) > 2
    assert not [line for line in lines if leaks(line.encode())] and not leaks(said.encode())
    written = [*contents(home), *contents(project.folder)]
    assert {"mlflow.db", "prefect.db"} <= {file.name for file, _ in written}
    assert not [(file, leaked) for file, content in written if (leaked := leaks(content))]
