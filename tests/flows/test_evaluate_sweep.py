"""Tests of `rewardflow evaluate --sweep`: cells are measured once, the choice is logged, and wrong arguments."""

import json
from pathlib import Path

import mlflow
import pytest
import torch
from project import Project, environment, run_here
from running import ROOT, type_in

from models.policies.folder import save_model_folder
from models.recipes.load import load_recipe
from tasks.tracking import store, tags
from tests.support.agent_scenes import make_scene
from tests.support.tiny_loops import TOKENIZER
from tests.support.tiny_models import tiny_policy

RECIPE = "self_play_kuhn"
FEW = (
    "--set evaluation.problems=6 --set evaluation.samples=2 --set 'evaluation.ks=[1]' "
    "--set 'sweep.strategies=[vote, best_of_n]' --set sweep.difficulty=accuracy"
)


@pytest.mark.slow
@pytest.mark.thorough
def test_a_sweep_measures_its_cells_once_and_logs_the_choice(project: Project, tmp_path: Path) -> None:
    own = make_scene("kuhn_poker", load_recipe(RECIPE).policy.tokenizer, tmp_path / "own").start
    home, result = tmp_path / "home", tmp_path / "sweep.json"
    settings = environment(**project.settings(home))

    def sweep(budgets: str) -> str:
        asked = (
            f"rewardflow evaluate {own} --recipe {RECIPE} --sweep {FEW} --json {result} --set 'sweep.budgets={budgets}'"
        )
        ended = type_in([asked], project.folder, **settings)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "Traceback" not in ended.stdout + ended.stderr
        return str(ended.stdout)

    printed = sweep("[2]")
    labels = ["plain", "vote 2", "vote 2 by likelihood", "best_of_n 2 by likelihood"]
    assert all(label in printed for label in labels) and "over plain" in printed
    first = json.loads(result.read_text())
    assert [cell["method"] for cell in first["cells"]] == ["plain", "vote", "vote", "best_of_n"]
    assert [choice["budget"] for choice in first["choices"]] == [2]
    for cell in first["cells"]:
        low, high = cell["accuracy"]["all"]["interval"]
        assert low <= cell["accuracy"]["all"]["estimate"] <= high and cell["tokens"] > 0 and cell["seconds"] > 0
    sweep("[2, 3]")
    second = json.loads(result.read_text())
    assert second["cells"][:2] == first["cells"][:2], "accuracy, tokens and seconds of a measured cell stay"
    assert [choice["budget"] for choice in second["choices"]] == [2, 3]
    store.configure(home)
    client = mlflow.MlflowClient()
    runs = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])
    measured = [run.info.run_name for run in runs if tags.REUSED not in run.data.tags]
    for label in ["alone", "difficulty", *labels, "vote 3", "best_of_n 3 by likelihood"]:
        assert measured.count(f"evaluate {label}") == 1
    parents = [run for run in runs if "sweep_2/over_plain" in run.data.metrics]
    assert len(parents) == 2
    files = [file.path for file in client.list_artifacts(parents[0].info.run_id, "plots")]
    assert files == ["plots/sweep.png"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["OWN", "--recipe", "calculator"], "name either a strategy (--strategy NAME) or a sweep"),
        (["OWN", "--recipe", "calculator", "--sweep", "--strategy", "vote"], "name either a strategy"),
        (
            ["OWN", "--recipe", "calculator", "--strategy", "vote", "--json", "x"],
            "--json: it is for the result of a sweep",
        ),
        (["OWN", "--recipe", "calculator", "--sweep", "--set", "strategy.drafts=2"], "a sweep has several strategies"),
        (["OWN", "--recipe", "calculator", "--sweep", "--set", "sweep.budgets=[0]"], "sweep.budgets.0"),
        (["OWN", "--recipe", "calculator", "--sweep", "--set", "rollouts.turn=3"], "rollouts.turn"),
    ],
    ids=["neither", "both", "json", "a single strategy's setting", "a bad value", "no key of the recipe"],
)
def test_a_wrong_argument_of_a_sweep_is_one_line_before_anything_starts(
    arguments: list[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model_folder(tiny_policy(torch.float32), TOKENIZER, tmp_path / "own")
    monkeypatch.setenv("REWARDFLOW_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(ROOT)
    given = [str(tmp_path / "own") if word == "OWN" else word for word in arguments]
    status, _, errors = run_here("evaluate", *given)
    assert status == 1
    lines = errors.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: ") and line in lines[0]
