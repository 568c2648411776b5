"""Mirrors have what MLflow has, once each, and never stop or slow a run. The packages are the real ones."""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mirror_readers import READERS, Copied, needs
from mirrored_training import RECIPE, training

from models.base.errors import UserError
from tasks.tracking import records, runs, store, tags
from tasks.tracking.metrics import MetricLog
from tasks.tracking.mirrors import choice, mirrored
from tasks.tracking.mirrors.worker import reason_of

EACH = [pytest.param(name, marks=needs(name)) for name in choice.NAMES]


@pytest.fixture(scope="session")
def session_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that Trackio uses in all tests: it reads the variable once, when it is imported."""
    return tmp_path_factory.mktemp("trackio")


@pytest.fixture(autouse=True)
def own_folders(session_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the packages out of the user's folders, and W&B offline."""
    for name in ("WANDB_PROJECT", "WANDB_ENTITY", "WANDB_DIR", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TRACKIO_DIR", str(session_folder))
    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "wandb_user"))


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Collect the lines that the tracking package logs."""
    lines: list[str] = []

    class Collects(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger, handler = logging.getLogger("rewardflow.tracking"), Collects()
    monkeypatch.setattr(logger, "disabled", False)
    logger.addHandler(handler)
    yield lines
    logger.removeHandler(handler)


def own_process(**extra: str) -> dict[str, str]:
    """Return the environment of a process that imports the tests' files, and starts a service of W&B of its own."""
    here = Path(__file__)
    paths = [str(here.resolve().parents[3]), str(here.parent), os.environ.get("PYTHONPATH", "")]
    inherited = {name: value for name, value in os.environ.items() if name != "WANDB_SERVICE"}
    return {**inherited, "PYTHONPATH": os.pathsep.join(paths), **extra}


def mlflow_points(run_id: str) -> dict[str, list[tuple[int, float]]]:
    """Return what MLflow has: key -> step and value of each point, in the order of the steps."""
    client = store.client()
    return {
        key: sorted((metric.step, metric.value) for metric in client.get_metric_history(run_id, key))
        for key in client.get_run(run_id).data.metrics
    }


def assert_equal_points(copied: Copied, run_id: str) -> None:
    points = {key: sorted(values) for key, values in copied.points.items()}
    expected = mlflow_points(run_id)
    assert points.keys() == expected.keys()
    for key, values in expected.items():
        assert [step for step, _ in points[key]] == [step for step, _ in values], key
        assert [value for _, value in points[key]] == pytest.approx([value for _, value in values]), key


# ---------------------------------------- the choice


def test_without_a_choice_nothing_is_mirrored(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(choice.VARIABLE, raising=False)
    flow, _ = training(home, "sums")
    assert choice.chosen() == () and not (home / "mirrors").exists()
    assert not {tags.MIRRORS, tags.MIRROR_OFF} & store.client().get_run(flow).data.tags.keys()


def test_names_are_separated_by_spaces_or_commas_and_a_misspelt_one_is_corrected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(choice.VARIABLE, "wandb, tensorboard wandb")
    assert choice.chosen() == ("wandb", "tensorboard")
    monkeypatch.setenv(choice.VARIABLE, "tensorbord")
    with pytest.raises(UserError, match="REWARDFLOW_MIRRORS: no mirror 'tensorbord'; did you mean tensorboard"):
        choice.chosen()


@pytest.mark.parametrize("name", choice.NAMES)
def test_a_mirror_that_is_not_installed_is_refused_before_a_run_exists(
    name: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(choice.VARIABLE, name)
    experiments = len(store.client().search_experiments())
    with monkeypatch.context() as nothing_installed:
        nothing_installed.setattr(sys, "path", [])
        with pytest.raises(UserError, match=rf"REWARDFLOW_MIRRORS: {name} not installed.*pip install") as caught:
            runs.open_flow_run("sums", "train sums")
        with pytest.raises(UserError, match=f"--mirror: {name} not installed"):
            choice.choose([name])
    assert "\n" not in str(caught.value) and len(store.client().search_experiments()) == experiments


@needs("tensorboard")
def test_a_store_apart_from_the_record_is_not_mirrored(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_database: Path
) -> None:
    monkeypatch.setenv(choice.VARIABLE, "tensorboard")
    (tmp_path / "apart").mkdir()
    (tmp_path / "apart/mlflow.db").write_bytes(empty_database.read_bytes())
    with store.separate_store(tmp_path / "apart"):
        training(tmp_path / "apart", "sums")
    assert not (tmp_path / "apart/mirrors").exists() and choice.chosen() == ("tensorboard",)


# ---------------------------------------- what a mirror has


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("name", EACH)
def test_a_mirror_has_params_tags_texts_and_every_point_with_its_step(
    name: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(choice.VARIABLE, name)
    exit_functions, began = (sys.exit, sys.excepthook), time.time()
    flow, step = training(home, f"sums_{name}")
    group = f"sums_{name}-{flow[:8]}"
    of_flow = READERS[name](home, f"sums_{name}", group)
    of_step = READERS[name](home, f"sums_{name}", f"{group}/fine_tune")
    assert_equal_points(of_flow, flow)
    assert_equal_points(of_step, step)
    assert all(began - 1 <= at <= time.time() for at in of_step.times["reward/total"])
    expected = store.client().get_run(flow).data
    assert {key: float(value) if key != "name" else value for key, value in of_flow.params.items()} == {
        "schedule.rounds": 10.0,
        "name": f"sums_{name}",
    }
    assert expected.params == {"schedule.rounds": "10", "name": f"sums_{name}"}
    assert of_flow.tags[tags.RECIPE] == f"sums_{name}" and of_flow.tags[tags.MIRRORS] == name
    assert of_step.tags[tags.PRECISION] == "float32"
    assert {line.strip() for line in of_flow.texts["recipe/sums.yaml"].splitlines()} == set(RECIPE.splitlines())
    assert "## promoted" in {**of_flow.texts, **of_flow.tags}.values()
    shown = {key for copied in (of_flow, of_step) for key in copied.tags}
    assert not {key for key in shown if key.startswith("mlflow.") and key != records.NOTE}
    assert not shown & {tags.HOST, tags.PLACE, tags.PID, tags.STATE_FOLDER}
    assert tags.MIRROR_OFF not in expected.tags and not list((home / "mirrors/unfinished").iterdir())
    assert (sys.exit, sys.excepthook) == exit_functions


@needs("tensorboard")
def test_a_run_that_reuses_a_result_has_no_copy(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(choice.VARIABLE, "tensorboard")
    flow = runs.open_flow_run("sums", "train sums")
    reused = runs.open_step_run(flow, "fine_tune", {tags.REUSED: "an earlier run"})
    records.log_metrics(reused, {"seconds": 1.0})
    runs.close_run(reused)
    runs.close_run(flow)
    assert [file.name for file in (home / "mirrors/tensorboard").rglob("fine_tune")] == []


@needs("wandb")
def test_steps_that_begin_again_with_a_second_curve_keep_their_number_in_wandb(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(choice.VARIABLE, "wandb")
    flow = runs.open_flow_run("twice", "train twice")
    with MetricLog(flow) as log:
        for key in ("first/loss", "second/loss"):
            for step in (1, 2, 3):
                log(step, {key: float(step)})
    runs.close_run(flow)
    assert_equal_points(READERS["wandb"](home, "twice", f"twice-{flow[:8]}"), flow)


# ---------------------------------------- resume


@pytest.mark.thorough
@pytest.mark.slow
@needs(*choice.NAMES)
def test_a_killed_run_that_is_resumed_continues_in_its_mirror_runs_with_every_point_once(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(choice.VARIABLE, " ".join(choice.NAMES))
    program = Path(__file__).with_name("mirrored_training.py")
    command = [sys.executable, str(program), str(home), "killed"]
    killed = subprocess.run(command, env=own_process(), check=False)
    assert killed.returncode == -9
    (first,) = [run for run in _steps("killed") if run.info.status == "RUNNING"]
    group = f"killed-{first.data.tags[runs.PARENT_TAG][:8]}"
    assert (home / "mirrors/tensorboard" / group / "fine_tune").is_dir()  # the mirrors had begun
    _, step = training(home, "killed", done=5)
    for name in choice.NAMES:
        copied = READERS[name](home, "killed", f"{group}/fine_tune")
        assert_equal_points(copied, step)
        assert [number for number, _ in copied.points["reward/total"]] == list(range(1, 11)), name
    tagged = store.client().get_run(step).data.tags
    assert tagged[tags.MIRROR_RUN] == f"{group}/fine_tune" and step != first.info.run_id
    assert not list((home / "mirrors/unfinished").iterdir())


def _steps(experiment: str) -> list:
    number = store.experiment_id(experiment)
    return [run for run in store.client().search_runs([number]) if runs.PARENT_TAG in run.data.tags]


@pytest.mark.parametrize("name", EACH)
def test_a_training_that_goes_back_in_one_process_shows_every_round_once(
    name: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(choice.VARIABLE, name)
    experiment = f"back_{name}"
    flow = runs.open_flow_run(experiment, "train back")
    step = runs.open_step_run(flow, "fine_tune")
    with MetricLog(step, home / "store/fine_tune/back/metrics.jsonl") as log:
        for round_number in (1, 2, 3, 4):
            log(round_number, {"loss": float(round_number)})
        log.replay(2)  # a learner was gone: the group resumes from the checkpoint
        for round_number in (3, 4, 5):
            log(round_number, {"loss": float(round_number)})
    runs.close_run(step)
    runs.close_run(flow)
    copied = READERS[name](home, experiment, f"{experiment}-{flow[:8]}/fine_tune")
    assert copied.points["loss"] == [(number, float(number)) for number in (1, 2, 3, 4, 5)]


# ---------------------------------------- failures


def assert_off(flow: str, name: str, warnings: list[str], why: str) -> None:
    off = store.client().get_run(flow).data.tags[tags.MIRROR_OFF]
    assert off.startswith(f"{name}: ") and why in off
    about = [line for line in warnings if "mirror" in line]
    assert len(about) == 1 and about[0].startswith(f"the mirror {name} is off: ") and "\n" not in about[0]


@pytest.mark.parametrize("name", EACH)
def test_a_mirror_that_cannot_be_written_is_off_with_one_line_and_mlflow_has_everything(
    name: str, home: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str], session_folder: Path
) -> None:
    monkeypatch.setenv(choice.VARIABLE, name)
    experiment = f"broken_{name}"
    if name == "trackio":
        (session_folder / f"{experiment}.db").mkdir()  # in the place of the database
    else:
        (home / "mirrors").mkdir()
        (home / "mirrors" / name).write_text("a file in the place of the folder")
    flow, step = training(home, experiment)
    assert len(mlflow_points(step)["reward/total"]) == 10
    assert store.client().get_run(flow).info.status == "FINISHED"
    assert_off(flow, name, warnings, "Error")


@pytest.mark.rotating(of=6)
@needs("tensorboard", "trackio")
def test_a_disk_that_becomes_full_turns_off_the_mirror_on_it_and_no_other(
    home: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    monkeypatch.setenv(choice.VARIABLE, "tensorboard trackio")
    folder = home / "mirrors/tensorboard"
    folder.mkdir(parents=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        flow = runs.open_flow_run("full", "train full")
        with MetricLog(flow) as log:
            for step in range(3000):
                log(step, {"reward/total": 0.5})
        runs.close_run(flow)
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
    assert len(mlflow_points(flow)["reward/total"]) == 3000
    assert_off(flow, "tensorboard", warnings, "No space left")
    assert len(READERS["trackio"](home, "full", f"full-{flow[:8]}").points["reward/total"]) == 3000


@pytest.mark.rotating(of=6)
@needs("tensorboard")
def test_a_mirror_that_hangs_slows_nothing_and_is_off_at_the_end(
    home: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    """The mirror waits for a lock: its folder's file system does not answer, as that of a server that is gone."""
    monkeypatch.setenv(choice.VARIABLE, "tensorboard")
    monkeypatch.setattr(mirrored, "CLOSING", 1.0)
    flow = runs.open_flow_run("hangs", "train hangs")
    (worker,) = mirrored._workers.values()
    hanging, let_go = _hanging()
    worker.put(flow, lambda: mirrored._runs[flow].place, hanging)
    began = time.monotonic()
    with MetricLog(flow) as log:
        for step in range(200):
            log(step, {"reward/total": 0.5})
        took = time.monotonic() - began
    runs.close_run(flow)
    let_go()
    assert took < 1.0
    assert len(mlflow_points(flow)["reward/total"]) == 200
    assert_off(flow, "tensorboard", warnings, "was not ready 1 s after the end of the run")


def _hanging() -> tuple[Callable[[object], None], Callable[[], None]]:
    """Return an action that blocks in a read until the second function is called."""
    reading, writing = os.pipe()
    return lambda run: (os.read(reading, 1), None)[1], lambda: os.close(writing)


@needs("tensorboard")
def test_the_next_run_of_the_process_has_its_mirror_again(
    home: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    monkeypatch.setenv(choice.VARIABLE, "tensorboard")
    place = home / "mirrors"
    place.write_text("a file in the place of the folder")
    failed, _ = training(home, "sums")
    assert_off(failed, "tensorboard", warnings, "Error")
    place.unlink()
    flow, step = training(home, "other")
    assert tags.MIRROR_OFF not in store.client().get_run(flow).data.tags
    assert_equal_points(READERS["tensorboard"](home, "other", f"other-{flow[:8]}/fine_tune"), step)


@pytest.mark.thorough
@pytest.mark.slow
@needs("wandb")
def test_a_server_of_wandb_that_is_away_ends_neither_the_run_nor_hangs_the_process(home: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tasks.tracking import store;"
        "from mirrored_training import training;"
        "home = Path(sys.argv[1]); store.configure(home); flow, _ = training(home, 'away');"
        "print(store.client().get_run(flow).data.tags['rewardflow.mirror_off'])"
    )
    extra = {choice.VARIABLE: "wandb", "WANDB_MODE": "online", "WANDB_BASE_URL": "http://127.0.0.1:9"}
    extra |= {"WANDB_API_KEY": "5ec2e7" * 7}
    ended = subprocess.run(
        [sys.executable, "-c", code, str(home)],
        env=own_process(**extra),
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    assert ended.stdout.startswith("wandb: CommError") and "Traceback" not in ended.stderr
    assert "5ec2e75ec2e7" not in ended.stdout + ended.stderr


# ---------------------------------------- secrets


SECRETS = {"WANDB_API_KEY": "ab12" * 10, "HF_TOKEN": "hf_planted0003", "AWS_SECRET_ACCESS_KEY": "planted-key-0002"}


@needs(*choice.NAMES)
def test_no_secret_command_line_package_list_or_output_is_in_what_the_mirrors_write(
    home: Path, session_folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(choice.VARIABLE, " ".join(choice.NAMES))
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    training(home, "secrets", at=lambda number: print("printed-by-the-run"))
    files = [file for folder in (home / "mirrors", session_folder) for file in folder.rglob("*") if file.is_file()]
    assert {".wandb", ".db"} <= {file.suffix for file in files} and len(files) > 4
    forbidden = [*SECRETS.values(), "printed-by-the-run", " ".join(sys.argv[1:]) or "no arguments"]
    leaked = [(file, text) for file in files for text in forbidden if text.encode() in file.read_bytes()]
    assert leaked == []
    names = {file.name for file in files}
    assert not names & {"wandb-metadata.json", "requirements.txt", "output.log", "diff.patch", "config.yaml"}
    assert "wandb" not in capfd.readouterr().err


def test_a_reason_is_one_line_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "ab12" * 10)
    error = ConnectionError(f"refused {'ab12' * 10}\n at https://ann:word@host/path " + "long " * 100)
    reason = reason_of(error)
    assert reason.startswith("ConnectionError: refused *** at https://***@host/path long") and len(reason) <= 200
