"""Secrets of the environment are in nothing that a run writes, says, or shows in the list of processes."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow.parquet as parquet
import pytest
from project import Project, command, environment
from running import ROOT

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
SECRETS = [value.rpartition("/")[2] for value in PLANTED.values()]


def contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Every file below a folder, tables out of their compression."""
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


@pytest.mark.thorough
def test_no_secret_of_the_environment_is_in_what_a_run_writes_says_or_has_in_a_command_line(
    project: Project, tmp_path: Path
) -> None:
    """State folder (MLflow's and Prefect's databases, artifacts, logs, caches, outbox), checkout, output, processes."""
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
