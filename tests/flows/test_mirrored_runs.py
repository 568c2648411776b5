"""Tests of mirrors from the command line: the option, `rewardflow doctor`, and a real training that is killed."""

import os
import signal
from importlib import metadata
from pathlib import Path

import pytest
from project import Project, command, environment, rewardflow
from running import ROOT, wait_for

from flows.command_line import main
from flows.doctor import Diagnosis, diagnose
from tasks.tracking import store, summaries, tags
from tasks.tracking.journal import read_journal
from tasks.tracking.mirrors import choice


def installed(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def mirrors_in(home: Path) -> Diagnosis:
    return next(finding for finding in diagnose(ROOT, home) if finding.name == "Mirrors")


def test_the_option_with_a_wrong_name_is_one_line_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("REWARDFLOW_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("sys.argv", ["rewardflow", "run", "arithmetic", "--mirror", "tensorbord"])
    with pytest.raises(SystemExit) as ended:
        main()
    lines = capsys.readouterr().err.strip().splitlines()
    assert ended.value.code == 1
    assert lines == ["error: --mirror: no mirror 'tensorbord'; did you mean tensorboard?"]
    assert not (tmp_path / "home").exists()


@pytest.mark.rotating(of=6)
def test_the_doctor_names_the_mirrors_their_versions_and_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(choice.VARIABLE, raising=False)
    assert mirrors_in(tmp_path).ok and mirrors_in(tmp_path).detail.startswith("none (REWARDFLOW_MIRRORS is not set)")
    monkeypatch.setenv(choice.VARIABLE, "tensorboard wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    both = mirrors_in(tmp_path)
    assert both.ok == bool(installed("tensorboard") and installed("wandb")) == (not both.mend)
    version = installed("tensorboard") or "(not installed)"
    assert f"tensorboard {version}: {tmp_path}/mirrors/tensorboard" in both.detail
    assert f": offline, {tmp_path}/mirrors/wandb" in both.detail
    monkeypatch.setenv(choice.VARIABLE, "mlflow")
    wrong = mirrors_in(tmp_path)
    assert not wrong.ok and "no mirror 'mlflow'" in wrong.mend


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.skipif(not installed("tensorboard"), reason="tensorboard is not installed (mirrors.lock)")
def test_a_training_that_was_killed_continues_in_its_folder_of_tensorboard(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    home, rounds = tmp_path / "home", ("--set", "schedule.rounds=41")
    process = project.start(*rounds, "--mirror", "tensorboard", home=home, log=tmp_path / "log")

    def begun() -> bool:
        return any(len(read_journal(file)) > 4 for file in home.glob("store/fine_tune/*/metrics.jsonl"))

    wait_for("the first rounds", begun, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    (killed,) = (home / "mirrors/tensorboard").glob("*/fine_tune")
    before = len(list(killed.iterdir()))
    settings = environment(**project.settings(home), **{choice.VARIABLE: "tensorboard"})
    ended = rewardflow(project.folder, *command("run", "tiny", *rounds)[3:], **settings)
    assert ended.returncode == 0 and "mirror" not in ended.stderr, ended.stderr
    assert list((home / "mirrors/tensorboard").glob("*/fine_tune")) == [killed]
    assert len(list(killed.iterdir())) == before + 1
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    store.configure(home)
    summary = summaries.run_summary("tiny", "latest")
    (step,) = [line for line in summary.steps if line.name == "fine_tune"]
    assert step.tags[tags.MIRROR_RUN] == "/".join(killed.relative_to(home / "mirrors/tensorboard").parts)
    assert tags.MIRROR_OFF not in summary.line.tags
    events = EventAccumulator(str(killed), size_guidance={"scalars": 0})
    events.Reload()
    for key in ("reward/total", "seconds/round"):
        mirrored = [(point.step, point.value) for point in events.Scalars(key)]
        history = sorted((m.step, m.value) for m in store.client().get_metric_history(step.run_id, key))
        assert [number for number, _ in mirrored] == list(range(1, 42))
        assert [value for _, value in mirrored] == pytest.approx([value for _, value in history])
    of_flow = [folder.name for folder in killed.parent.parent.iterdir()]
    assert len(of_flow) == 2 and all(name.startswith("tiny-") for name in of_flow)
