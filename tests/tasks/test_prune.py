"""`gc` on a real store with versions, aliases and reused steps: what it removes and what it always keeps."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from small_steps import context

from flows.cli.gc import prune_lines
from tasks.runner.step import StepOutput, StepResult, earlier_result, record_reuse, run_step, step_folder
from tasks.state import cut_off, prune
from tasks.tracking import registry, runs, store, tags

KEY = {name: letter * 64 for name, letter in zip(("first", "second", "third", "fourth", "loose"), "abcde", strict=True)}
OLD = 1_000_000_000  # 2001


@dataclass(frozen=True)
class Factory:
    """Three runs that trained one policy version each from the same warm start, and a training without a version."""

    home: Path
    tuned: dict[str, StepResult]
    warmed: StepResult
    models: dict[str, str]
    """The id of the LoggedModel of each training and of the warm start, by name."""

    def stays(self, name: str) -> bool:
        return step_folder(self.home, "fine_tune", KEY[name]).is_dir()


def logged(run_id: str, name: str) -> str:
    """Log a model with one small artifact, and return its id."""
    experiment = store.client().get_run(run_id).info.experiment_id
    model = store.client().create_logged_model(experiment, name, source_run_id=run_id)
    place = Path(model.artifact_location.removeprefix("file://"))
    place.mkdir(parents=True)
    (place / "weights").write_text(name * 100)
    store.client().finalize_logged_model(model.model_id, "READY")
    return str(model.model_id)


@pytest.fixture
def factory(tmp_path: Path, new_store: Callable[[Path], Path]) -> Factory:
    new_store(tmp_path)
    flow = {name: runs.open_flow_run("tiny", name) for name in KEY}
    models: dict[str, str] = {}

    def work(name: str) -> Callable[[Path, str], StepOutput]:
        def made(folder: Path, run_id: str) -> StepOutput:
            (folder / "policy").write_text(name * 1000)
            models[name] = logged(run_id, "policy")
            return StepOutput("digest", name, {}, {"model_id": models[name]})

        return made

    warmed = run_step(context(tmp_path, "warm_start", "w" * 64, flow["first"]), work("warm"))
    tuned = {}
    for name in ("first", "second", "third", "loose"):
        if name != "first":
            record_reuse(context(tmp_path, warmed.step, warmed.key, flow[name]), warmed)
        tuned[name] = run_step(context(tmp_path, "fine_tune", KEY[name], flow[name]), work(name))
    for name in ("first", "second", "third"):
        registry.register("tiny-policy", models[name], {tags.RUN: flow[name]})
    for number, alias in (("1", "champion"), ("2", "champion")):
        store.client().set_registered_model_alias("tiny-policy", alias, number)
    store.client().set_model_version_tag("tiny-policy", "1", tags.PROMOTED_AT, "2001-09-09")
    return Factory(tmp_path, tuned, warmed, models)


def grow_old(home: Path) -> None:
    for entry in (home / "store").rglob("*"):
        os.utime(entry, (OLD, OLD))


def collect(home: Path, keep_days: float = 0.0, refused: bool = False) -> str:
    held = prune.plan(home, keep_days, refused)
    prune.remove(home, held)
    return prune_lines(held)


@pytest.mark.rotating(of=6)
def test_only_what_no_version_needs_goes_and_the_rest_can_still_be_taken(factory: Factory) -> None:
    grow_old(factory.home)
    said = collect(factory.home)
    assert [name for name in KEY if factory.stays(name)] == ["first", "second", "third"]
    for name in ("first", "second", "third"):
        assert earlier_result(context(factory.home, "fine_tune", KEY[name])) == factory.tuned[name]
    assert earlier_result(context(factory.home, "warm_start", "w" * 64)) == factory.warmed
    assert f"store/fine_tune/{'e' * 24}: nothing needs it" in said and "delete " in said
    assert registry.missing(factory.tuned["loose"].run_id, {"model_id": factory.models["loose"]})
    assert store.client().get_run(factory.tuned["loose"].run_id).data.metrics["seconds"] > 0  # runs are kept
    assert not list(factory.home.glob(f"mlartifacts/tiny/models/{factory.models['loose']}/artifacts/*"))


@pytest.mark.rotating(of=6)
def test_what_a_champion_came_from_stays_whatever_is_asked(factory: Factory) -> None:
    """Version 2 is champion and version 1 was; version 3 never was. The warm start was made once and reused."""
    grow_old(factory.home)
    said = collect(factory.home, refused=True)
    assert [name for name in KEY if factory.stays(name)] == ["first", "second"]
    assert earlier_result(context(factory.home, "warm_start", "w" * 64)) == factory.warmed
    assert "tiny-policy version 2 (champion)" in said and "tiny-policy version 1, which was champion" in said
    assert "only tiny-policy version 3 needs it" in said
    for name in ("first", "second", "third", "warm"):  # MLflow keeps the weights of versions and of their warm start
        assert list(factory.home.glob(f"mlartifacts/tiny/models/{factory.models[name]}/artifacts/weights"))


def make_again(factory: Factory, name: str) -> StepResult:
    """Make the same outputs in another run, as `run --refresh` does. Their version still needs them."""

    def work(folder: Path, run_id: str) -> StepOutput:
        (folder / "policy").write_text(name * 1000)
        return StepOutput("digest", name)

    return run_step(context(factory.home, "fine_tune", KEY[name], runs.open_flow_run("tiny", "again")), work)


@pytest.mark.rotating(of=6)
def test_what_a_champion_came_from_stays_however_often_it_was_made_again(factory: Factory) -> None:
    for name in ("first", "second", "second", "loose"):
        again = make_again(factory, name)
        assert earlier_result(context(factory.home, "fine_tune", KEY[name])) == again  # the newest result is used
    grow_old(factory.home)
    said = collect(factory.home, refused=True)
    assert [name for name in KEY if factory.stays(name)] == ["first", "second"]
    assert "tiny-policy version 2 (champion)" in said and "tiny-policy version 1, which was champion" in said


@pytest.mark.rotating(of=6)
def test_a_champions_outputs_stay_while_they_are_made_again_and_that_is_stopped(factory: Factory) -> None:
    def stopped(folder: Path, run_id: str) -> StepOutput:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_step(context(factory.home, "fine_tune", KEY["second"], runs.open_flow_run("tiny", "stopped")), stopped)
    make_again(factory, "second")
    grow_old(factory.home)
    collect(factory.home, refused=True)
    assert factory.stays("second")


@pytest.mark.rotating(of=6)
def test_old_downloads_and_log_probs_of_references_go_and_those_used_lately_stay(factory: Factory) -> None:
    model, log_probs = (registry.download_folder(factory.home) / "m-1", factory.home / "store/reference/a.safetensors")
    served = factory.home / "serving/abc-v1.sha256"
    served.parent.mkdir()
    served.write_text("abc")
    rows = factory.home / "hub_data/own--rows/0123/config/train-00000.parquet"
    for file in (model / "model.safetensors", log_probs, rows):
        file.parent.mkdir(parents=True)
        file.write_bytes(b"0" * 2000)
    collect(factory.home, keep_days=1)
    assert model.is_dir() and log_probs.is_file() and served.is_file() and rows.is_file()
    for entry in (model / "model.safetensors", model, log_probs, served, rows, *list(rows.parents)[:2]):
        os.utime(entry, (OLD, OLD))
    said = collect(factory.home, keep_days=1)
    assert not model.exists() and not log_probs.exists() and not served.exists() and not rows.exists()
    assert "models/m-1: downloaded again" in said and "reference/a.safetensors: made again" in said


@pytest.mark.rotating(of=6)
def test_what_was_made_or_used_lately_stays(factory: Factory) -> None:
    grow_old(factory.home)
    again = context(factory.home, "fine_tune", KEY["loose"], runs.open_flow_run("tiny", "again"))
    record_reuse(again, factory.tuned["loose"])
    collect(factory.home, keep_days=1)
    assert factory.stays("loose")
    collect(factory.home, keep_days=0)
    assert not factory.stays("loose")


@pytest.mark.rotating(of=6)
def test_checkpoints_of_a_run_that_can_go_on_stay(factory: Factory) -> None:
    stopped = step_folder(factory.home, "fine_tune", KEY["fourth"])
    (stopped / "checkpoints" / "round_000001").mkdir(parents=True)
    cut_off.note(factory.home, "tiny", cut_off.Unfinished("run", "", "data", "code", {}), stopped)
    grow_old(factory.home)
    assert "checkpoints of a run that can go on" in collect(factory.home, refused=True)
    assert (stopped / "checkpoints" / "round_000001").is_dir()


@pytest.mark.rotating(of=6)
def test_checkpoints_of_stopped_runs_that_no_recipe_resumes_from_stay_for_the_retention_time_alone(
    factory: Factory,
) -> None:
    stopped = step_folder(factory.home, "fine_tune", KEY["fourth"])
    (stopped / "checkpoints" / "round_000001").mkdir(parents=True)
    cut_off.note(factory.home, "tiny", cut_off.Unfinished("run", "", "data", "code", {}), stopped.with_name("newer"))
    assert "checkpoints of a run that can go on" in collect(factory.home, keep_days=1)
    assert stopped.is_dir()
    grow_old(factory.home)
    assert "checkpoints of a stopped run that no recipe resumes from" in collect(factory.home, keep_days=1)
    assert not stopped.exists()


@pytest.mark.rotating(of=6)
def test_outputs_whose_run_the_store_in_use_does_not_know_stay(
    factory: Factory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The outputs belong to another tracking store. The store in use does not know what versions of that one need."""
    grow_old(factory.home)
    (tmp_path / "other").mkdir()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/other/mlflow.db")
    store.configure(factory.home)
    assert "its run is not in the tracking store in use" in collect(factory.home)
    assert factory.stays("first") and factory.stays("loose")


@pytest.mark.rotating(of=6)
def test_planning_deletes_nothing_and_leftovers_of_killed_processes_go(factory: Factory) -> None:
    leftover = factory.home / "store" / "fine_tune" / ".abc.1.gone"
    leftover.mkdir()
    half = factory.home / ".servers.json.4194305.part"
    half.write_text("half")
    grow_old(factory.home)
    before = sorted(factory.home.rglob("*"))
    held = prune.plan(factory.home, 0.0)
    assert sorted(factory.home.rglob("*")) == before
    assert {leftover, half} <= {entry.place for entry in held if entry.removed}
    freed = prune.remove(factory.home, held)
    assert not leftover.exists() and freed == sum(entry.bytes for entry in held if entry.removed) > 5000
