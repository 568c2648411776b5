"""A step of the pipeline: its key, when it is complete, and what a failure leaves."""

import contextlib
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from small_steps import context

from models.base.errors import UserError
from tasks.data.dvc_command import repository_lock, run_dvc
from tasks.runner import step
from tasks.runner.deadline import deadline
from tasks.runner.step import StepOutput, content_key, earlier_result, record_reuse, run_step, step_folder
from tasks.tracking import runs, store, tags

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def parent(home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Open the MLflow run of a flow in the store of `home`, and return its id."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    store.configure(home)
    return runs.open_flow_run("steps", "a flow")


def children(parent: str) -> list[tuple[str, str]]:
    """Return the name and the status of each step's run."""
    children = store.client().search_runs(
        [store.client().get_run(parent).info.experiment_id], f"tags.`{runs.PARENT_TAG}` = '{parent}'"
    )
    return [(run.info.run_name, run.info.status) for run in children]


def test_equal_inputs_have_one_key_whatever_the_order_of_a_mapping() -> None:
    assert content_key("a", {"x": 1, "y": [2]}) == content_key("a", {"y": [2], "x": 1})


@pytest.mark.parametrize(
    "other",
    [
        ("b", "digest", {"rounds": 4, "optimiser": {"rate": 0.1}}, 0),
        ("a", "digesu", {"rounds": 4, "optimiser": {"rate": 0.1}}, 0),
        ("a", "digest", {"rounds": 5, "optimiser": {"rate": 0.1}}, 0),
        ("a", "digest", {"rounds": 4, "optimiser": {"rate": 0.2}}, 0),
        ("a", "digest", {"rounds": 4, "optimiser": {"rate": 0.1}}, 1),
        ("a", "digest", {"rounds": 4, "optimiser": {"rate": 0.1}}),
        ("a", "digest", {"rounds": 4, "optimiser": {"rate": 0.1}}, None),
    ],
)
def test_another_step_or_any_other_input_has_another_key(other: tuple[object, ...]) -> None:
    assert content_key(*other) != content_key("a", "digest", {"rounds": 4, "optimiser": {"rate": 0.1}}, 0)  # type: ignore[arg-type]


@pytest.mark.thorough
def test_changed_source_changes_the_key_and_nothing_else_of_the_checkout_does(tmp_path: Path) -> None:
    for name in ("models", "tasks", "data/expectations"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))

    def key() -> str:
        code = "from tasks.runner.step import content_key; print(content_key('a', 1))"
        return subprocess.check_output([sys.executable, "-c", code], cwd=tmp_path, text=True)

    keys = [key()]
    (tmp_path / "README.md").write_text("changed")
    (tmp_path / "models" / "training" / "notes.txt").write_text("no code")
    assert key() == keys[0]
    for changed in ("models/training/loop.py", "tasks/steps/evaluate.py", "data/expectations/problems.yaml"):
        with (tmp_path / changed).open("a") as file:
            file.write("\n")
        keys.append(key())
    assert len(set(keys)) == 4


@pytest.mark.rotating(of=6)
def test_a_step_is_complete_when_its_result_lies_beside_its_outputs(home: Path, parent: str) -> None:
    assert earlier_result(context(home, "one", "k" * 64)) is None

    def work(folder: Path, run_id: str) -> StepOutput:
        (folder / "output").write_text("made")
        assert earlier_result(context(home, "one", "k" * 64)) is None
        return StepOutput("digest", "went well", {"accuracy": 0.5}, {"report": "r"})

    result = run_step(context(home, "one", "k" * 64, parent), work)
    assert earlier_result(context(home, "one", "k" * 64)) == result
    assert earlier_result(context(home, "one", "l" * 64)) is None
    folder = step_folder(home, "one", "k" * 64)
    assert sorted(file.name for file in folder.iterdir()) == ["output", "result.json"]
    assert children(parent) == [("one", "FINISHED")]
    assert store.client().get_run(result.run_id).data.metrics["accuracy"] == 0.5


def test_a_reused_step_shows_the_numbers_of_the_run_that_it_comes_from(home: Path, parent: str) -> None:
    result = run_step(
        context(home, "four", "k", parent), lambda folder, run: StepOutput("d", "h", {"eval/accuracy": 0.25})
    )
    later = runs.open_flow_run("steps", "a later flow")
    record_reuse(context(home, result.step, result.key, later), result)
    assert children(later) == [("four", "FINISHED")]
    (child,) = store.client().search_runs(
        [store.client().get_run(later).info.experiment_id], f"tags.`{runs.PARENT_TAG}` = '{later}'"
    )
    assert child.data.metrics == {"eval/accuracy": 0.25}
    assert child.data.tags[tags.REUSED] == result.run_id != child.info.run_id


@pytest.mark.parametrize(
    ("error", "status"),
    [(UserError("wrong"), "FAILED"), (RuntimeError("broken"), "FAILED"), (KeyboardInterrupt(), "KILLED")],
)
def test_a_step_that_fails_closes_its_run_and_leaves_no_result_but_its_checkpoints(
    home: Path, parent: str, error: BaseException, status: str
) -> None:
    key = type(error).__name__

    def work(folder: Path, run_id: str) -> StepOutput:
        (folder / "checkpoints").mkdir()
        raise error

    with pytest.raises(type(error)):
        run_step(context(home, "two", key, parent), work)
    assert children(parent) == [("two", status)]
    assert not earlier_result(context(home, "two", key))
    assert [entry.name for entry in step_folder(home, "two", key).iterdir()] == ["checkpoints"]


@pytest.mark.parametrize("code", ["import sys; sys.exit(0)", "import os; os._exit(0)"])
def test_a_part_that_leaves_fails_its_step_with_a_line_that_names_the_file(home: Path, parent: str, code: str) -> None:
    def work(folder: Path, run_id: str) -> StepOutput:
        exec(compile(code, "/mine/objective.py", "exec"), {})
        raise AssertionError

    with pytest.raises(UserError, match=r"the step leave: called .*exit\(0\) \(/mine/objective\.py, line 1\)"):
        run_step(context(home, "leave", "k", parent), work)


def test_a_result_that_cannot_be_recorded_is_no_result(home: Path, parent: str) -> None:
    """The step logs more metrics than a run may have. It has run, but it does not count as complete."""
    with pytest.raises(UserError, match="at most"):
        many = {f"m{number}": 0.0 for number in range(99)}
        run_step(context(home, "three", "k", parent), lambda folder, run: StepOutput("d", "h", many))
    assert not earlier_result(context(home, "three", "k"))
    assert children(parent) == [("three", "FAILED")]


def test_the_versions_of_packages_that_compute_are_part_of_the_source_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    before = step.source_hash.__wrapped__()
    monkeypatch.setattr(step.importlib.metadata, "version", lambda package: "0.0.0")
    assert step.source_hash.__wrapped__() != before


def test_what_a_killed_write_left_in_a_steps_folder_is_no_output_of_the_next_run(home: Path, parent: str) -> None:
    given = context(home, "five", "k", parent)
    (given.folder / "policy").mkdir(parents=True)
    (given.folder / "policy" / ".model.safetensors.4194305.part").write_text("half")
    run_step(given, lambda folder, run: StepOutput("d", "h"))
    assert [entry.name for entry in given.folder.rglob("*")] == ["policy", "result.json"]


def test_a_step_that_takes_too_long_fails_with_its_line_and_is_made_by_the_next_run(home: Path, parent: str) -> None:
    slow = replace(context(home, "slow", "a key", parent), limit=0.3)
    with pytest.raises(UserError, match=r"slow took longer than the 0.3 s that timeouts.slow allows"):
        run_step(slow, lambda folder, run_id: time.sleep(60))  # type: ignore[arg-type,return-value]
    assert children(parent) == [("slow", "FAILED")] and earlier_result(slow) is None
    run_step(slow, lambda folder, run_id: StepOutput("d", ""))
    made = earlier_result(slow)
    assert made is not None and made.digest == "d"


@pytest.mark.rotating(of=12, together="hang of DVC")
def test_a_dvc_that_hangs_is_ended_with_the_step_that_waits_for_it(tmp_path: Path) -> None:
    """The process of the stage that DVC runs must end too."""
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    with repository_lock(tmp_path) as lock:
        run_dvc(tmp_path, ["init", "--force"], print, lock)
        (tmp_path / "dvc.yaml").write_text("stages: {slow: {cmd: 'echo $$ > stage; exec sleep 600'}}")
        with pytest.raises(UserError, match="data took longer"), deadline("data", 10.0):
            run_dvc(tmp_path, ["repro"], print, lock)
    stage = int((tmp_path / "stage").read_text())
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(stage).wait(timeout=30)
