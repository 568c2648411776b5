"""The command `rewardflow curves`: the trainings of runs and comparisons, picture, table, and errors."""

import csv
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from project import run_here

from tasks.tracking import records, runs, tags

METRIC = "reward/total"


@pytest.fixture
def home(tmp_path: Path, new_store: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    new_store(tmp_path)
    monkeypatch.setattr("os.environ", {**os.environ, "REWARDFLOW_HOME": str(tmp_path)})
    return tmp_path


def log_training(parent: str, values: list[float]) -> None:
    """Log a training of `parent` with a value for each round, from round 1."""
    step = runs.open_step_run(parent, "fine_tune")
    for number, value in enumerate(values, 1):
        records.log_metrics(step, {METRIC: value}, step=number)
    runs.close_run(step)


def flow(experiment: str, values: list[float]) -> str:
    run = runs.open_flow_run(experiment, f"train {experiment}", {tags.RECIPE: experiment})
    log_training(run, values)
    runs.close_run(run)
    return run


def comparison(methods: dict[str, list[list[float]]]) -> str:
    run = runs.open_flow_run("comparison", "compare")
    for method, trainings in methods.items():
        for seed, values in enumerate(trainings):
            own = runs.open_step_run(run, f"{method}, seed {seed}", {tags.RECIPE: method, tags.SEED: str(seed)})
            log_training(own, values)
            runs.close_run(own)
    runs.close_run(run)
    return run


@pytest.mark.rotating(of=6)
def test_a_comparison_is_drawn_by_method_and_a_run_joins_its_recipe(home: Path, tmp_path: Path) -> None:
    compared = comparison({"grpo": [[0.1, 0.3, 0.5], [0.1, 0.5, 0.7]], "dpo": [[0.1, 0.2, 0.2]]})
    single = flow("dpo", [0.3, 0.4, 0.4, 0.9])
    picture, table = tmp_path / "new" / "curves.png", tmp_path / "curves.csv"
    code, out, err = run_here("curves", compared, single, "--png", str(picture), "--csv", str(table))
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0] == "reward/total, 95 % bootstrap intervals over trainings"
    assert lines[1].split() == ["method", "trainings", "steps", "last", "area"]
    assert lines[2].startswith("grpo") and "0.6 [0.5, 0.7]" in lines[2] and " 2 " in lines[2]
    assert lines[3].startswith("dpo") and "0.3 [0.2, 0.4]" in lines[3]
    assert picture.read_bytes().startswith(b"\x89PNG")
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["method"], row["step"]) for row in rows] == [("grpo", n) for n in "123"] + [("dpo", n) for n in "123"]
    assert [float(row["middle"]) for row in rows] == pytest.approx([0.1, 0.4, 0.6, 0.2, 0.3, 0.3])
    assert {row["trainings"] for row in rows} == {"2"}
    code, out, _ = run_here("curves", compared, "--by", "run")
    assert code == 0 and len(out.splitlines()) == 2 + 3 and "grpo, seed 1 " in out


def test_a_run_or_metric_without_curves_is_one_line_and_nothing_is_written(home: Path, tmp_path: Path) -> None:
    run = flow("grpo", [0.1, 0.3])
    empty = runs.open_flow_run("grpo", "stopped early")
    for arguments, error in (
        ((run, "--metric", "reward/totl"), "--metric reward/totl: the training of train grpo does not have it; did you "
         "mean reward/total?"),
        ((empty,), f"run {empty[:8]} (stopped early) has no step fine_tune, so no curves"),
        (("nosuch",), "no run 'nosuch'; `rewardflow runs` lists those that there are"),
        ((run, "--png", str(tmp_path / "a.jpg"), "--csv", str(tmp_path / "a.csv")),
         f"--png {tmp_path / 'a.jpg'}: the name of a picture ends in .png"),
    ):  # fmt: skip
        assert run_here("curves", *arguments) == (1, "", f"error: {error}\n")
    assert not list(tmp_path.glob("a.*"))
