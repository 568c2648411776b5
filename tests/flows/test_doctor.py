"""Tests of `rewardflow doctor`: it finds faults of a machine, prints a remedy for each, and changes nothing."""

import os
import sqlite3
from pathlib import Path

import pytest
from project import rewardflow
from running import ROOT, free_port, start_python

from flows.command_line import main
from flows.doctor import Diagnosis, diagnose, table
from models.sandbox.engines import engine_lines
from models.sandbox.fork_servers import Layers
from models.sandbox.layers import Isolation, available_layers
from tests.support import container_engine


def finding(findings: list[Diagnosis], name: str) -> Diagnosis:
    return next(finding for finding in findings if finding.name == name)


def test_what_is_not_well_says_what_mends_it(tmp_path: Path) -> None:
    findings = diagnose(ROOT, tmp_path)
    assert all(finding.ok or finding.mend for finding in findings)
    printed = table(findings)
    assert all(
        finding.name in printed and finding.detail in printed and finding.mend in printed for finding in findings
    )


def test_the_locked_environment_is_well() -> None:
    findings = diagnose(ROOT)
    wanted = [finding(findings, name) for name in ("Python", "Locked versions", "torch", "vLLM", "Processor")]
    assert [finding for finding in wanted if not finding.ok] == []


def test_a_version_that_differs_from_the_lock_is_named(tmp_path: Path) -> None:
    for lock in ("cpu.lock", "cuda.lock"):
        (tmp_path / lock).write_text("# a remark\nPyYAML==1.2.3\npsutil==0.1\nno_such_package==7\n")
    check = finding(diagnose(tmp_path, tmp_path), "Locked versions")
    assert not check.ok and check.mend == "make clean install"
    assert "PyYAML" in check.detail and "instead of 1.2.3" in check.detail
    assert "no_such_package missing instead of 7" in check.detail


def test_a_checkout_that_git_refuses_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    look = finding(diagnose(ROOT), "DVC repository")
    assert not look.ok and "dubious ownership" in look.mend and "safe.directory" in look.mend


@pytest.mark.rotating(of=6)
def test_a_damaged_tracking_store_is_found_and_a_sound_one_is_counted(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "mlflow.db") as store:
        store.execute("create table runs (run_uuid text)")
        store.execute("insert into runs values ('a')")
    store.close()
    assert finding(diagnose(ROOT, tmp_path), "Tracking store").detail.endswith("1 runs")
    (tmp_path / "mlflow.db").write_bytes(b"this is no database" * 100)
    assert not finding(diagnose(ROOT, tmp_path), "Tracking store").ok


@pytest.mark.rotating(of=6)
def test_the_layers_of_the_sandbox_are_those_that_its_fork_server_has(monkeypatch: pytest.MonkeyPatch) -> None:
    look = finding(diagnose(ROOT), "Sandbox")
    assert look.ok == available_layers().layers.enough and available_layers().layers.line in look.detail
    monkeypatch.setattr("flows.doctor.available_layers", lambda: Isolation(Layers(False, 0, True), "refused"))
    look = finding(diagnose(ROOT), "Sandbox")
    assert not look.ok and look.mend and "refused" in look.detail and "missing: namespaces, Landlock" in look.detail


def test_container_engines_are_named_or_their_absence_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    containers = container_engine.install(tmp_path, "podman", [])
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert "podman answers" in engine_lines(("podman",))[0]
    (containers / "stopped").touch()
    assert "podman does not answer" in engine_lines(("podman",))[0]
    monkeypatch.setenv("PATH", "")
    look = finding(diagnose(ROOT), "Containers")
    assert look.ok and "only sandbox.runner: container needs one" in look.detail


@pytest.mark.parametrize(
    ("variable", "name", "below"),
    [("MLFLOW_TRACKING_URI", "MLflow server", ""), ("PREFECT_API_URL", "Prefect server", "/api")],
)
def test_a_server_of_the_environment_that_is_away_is_found(
    variable: str, name: str, below: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, f"http://127.0.0.1:{free_port()}{below}")
    check = finding(diagnose(ROOT, tmp_path), name)
    assert not check.ok and f"{variable} names" in check.mend and "does not answer" in check.mend


def test_a_state_folder_that_cannot_be_written_is_found(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    check = finding(diagnose(ROOT, tmp_path / "file" / "home"), "State folder")
    assert not check.ok and "REWARDFLOW_HOME" in check.mend


def test_a_folder_without_dvc_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not finding(diagnose(ROOT, tmp_path), "DVC repository").ok


@pytest.mark.rotating(of=6)
def test_an_s3_remote_that_does_not_answer_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    remote = f"url = s3://bucket/prefix\n    endpointurl = http://127.0.0.1:{free_port()}"
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc" / "config").write_text(f"[core]\n    remote = store\n['remote \"store\"']\n    {remote}\n")
    check = finding(diagnose(ROOT, tmp_path), "S3 remote")
    assert not check.ok and "s3://bucket/prefix" in check.detail and "\n" not in check.detail


def test_it_imports_nothing_heavy_and_writes_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; from flows.doctor import diagnose; diagnose(); "
        "print(sorted({'torch', 'vllm', 'mlflow', 'prefect', 'transformers', 'great_expectations'} & set(sys.modules)))"
    )
    asked = start_python(code, tmp_path)
    assert asked.communicate()[0].strip() == "[]"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.rotating(of=6)
def test_the_exit_status_tells_that_something_is_wrong(tmp_path: Path) -> None:
    asked = rewardflow(tmp_path, "doctor", PYTHONPATH=str(ROOT), REWARDFLOW_HOME=str(tmp_path / "home"))
    assert "no .dvc in" in asked.stdout and asked.returncode == 1, asked.stdout + asked.stderr


def test_an_option_that_does_not_exist_is_told_as_every_command_line_does(tmp_path: Path) -> None:
    asked = rewardflow(tmp_path, "doctor", "--no-such-option", PYTHONPATH=str(ROOT))
    assert asked.returncode == 2 and "No such option: --no-such-option" in asked.stderr


def test_an_interruption_says_how_to_go_on_and_ends_with_the_shells_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(deep: bool) -> list[Diagnosis]:
        raise KeyboardInterrupt

    monkeypatch.setattr("flows.doctor.diagnose", interrupt)
    monkeypatch.setattr("os.environ", dict(os.environ))
    monkeypatch.setattr("sys.argv", ["rewardflow", "doctor"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "\ninterrupted; the same command continues from the last checkpoint\n"
