"""Tests of `rewardflow evaluate --strategy`: a policy with another policy as its partner, and wrong arguments."""

import json
import shutil
from pathlib import Path

import mlflow
import pytest
import torch
from project import Project, environment, run_here
from running import ROOT, type_in

from models.policies.build import load_causal_model
from models.policies.folder import save_model_folder
from models.recipes.load import load_recipe
from models.text.tokenizer import load_tokenizer
from tasks.tracking import store
from tests.support.agent_scenes import make_scene
from tests.support.tiny_loops import TOKENIZER
from tests.support.tiny_models import tiny_policy

RECIPE = "self_play_kuhn"
FEW = "--set evaluation.problems=6 --set evaluation.samples=4 --set 'evaluation.ks=[1]'"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Make the folders of a policy and of a partner that draws its tokens uniformly."""
    folder = tmp_path_factory.mktemp("players")
    kind = load_recipe(RECIPE).policy.tokenizer
    own = make_scene("kuhn_poker", kind, folder / "own").start
    partner = load_causal_model(own, torch.float32)
    for parameter in partner.parameters():
        parameter.data.mul_(0.0)  # every token is equally likely: it seldom writes an action
    save_model_folder(partner, load_tokenizer(own), folder / "partner")
    return {"own": own, "partner": folder / "partner"}


@pytest.mark.slow
@pytest.mark.thorough
def test_the_command_measures_a_policy_alone_with_a_strategy_and_beside_a_partner(
    project: Project, folders: dict[str, Path], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    asked = (
        f"rewardflow evaluate {folders['own']} --recipe {RECIPE} --strategy cross_play {FEW} "
        f"--set 'strategy.partners=[{folders['partner']}]'"
    )
    ended = type_in([asked], project.folder, **environment(**project.settings(home)))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stdout + ended.stderr
    assert "sampled_accuracy" in ended.stdout and "calls a turn" in ended.stdout
    assert "partners   alone wins " in ended.stdout and "cross_play wins " in ended.stdout
    store.configure(home)
    client = mlflow.MlflowClient()
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    runs = {run.info.run_name: run for run in client.search_runs(experiments)}
    (parent,) = (run for run in runs.values() if run.data.tags.get("rewardflow.strategy") == "cross_play")
    children = {name: run for name, run in runs.items() if name.startswith("evaluate ")}
    assert {"evaluate plain", "evaluate cross_play"} <= set(children)
    made = children["evaluate cross_play"]
    assert made.data.tags["mlflow.parentRunId"] == parent.info.run_id
    metrics = made.data.metrics
    assert (
        metrics["gain/sampled_accuracy_low"]
        <= metrics["gain/sampled_accuracy"]
        <= metrics["gain/sampled_accuracy_high"]
    )
    assert 1 <= metrics["strategy/calls_a_turn"] <= 3 and metrics["strategy/turns"] > 0
    table = json.loads(Path(client.download_artifacts(made.info.run_id, "cross_play.json", str(tmp_path))).read_text())
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    assert [(row["player"], row["partner"]) for row in rows] == [
        ("alone", str(folders["partner"])),
        ("cross_play", str(folders["partner"])),
    ]
    for row in rows:
        assert row["low"] <= row["payoff"] <= row["high"]
        assert metrics[f"cross_play/{row['player']}"] == pytest.approx(row["payoff"])
    alone = rows[0]["payoff"]
    assert alone > 0, "who says no action loses the most there is to lose"
    shutil.rmtree(home, ignore_errors=True)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["/nowhere", "--strategy", "vote", "--recipe", "calculator"], "nothing was run here yet"),
        (
            ["EMPTY", "--strategy", "vote", "--recipe", "calculator"],
            "config.json is missing; this is not a model folder",
        ),
        (["OWN", "--strategy", "vote"], "is a folder: --recipe says on whose problems"),
        (["OWN", "--strategy", "guess", "--recipe", "calculator"], "strategy.name: 'guess' is not known"),
        (["OWN", "--strategy", "vote", "--recipe", "no_such"], "no_such"),
        (["OWN", "--strategy", "vote", "--recipe", "calculator", "--set", "strategy.drafts=0"], "strategy.drafts"),
        (
            ["OWN", "--strategy", "vote", "--recipe", "calculator", "--set", "strategy.votes=3"],
            "strategy.votes: unknown key",
        ),
        (["OWN", "--strategy", "vote", "--recipe", "calculator", "--set", "rollouts.turn=3"], "rollouts.turn"),
    ],
    ids=[
        "policy",
        "no model",
        "recipe left out",
        "strategy",
        "recipe",
        "a bad value",
        "no setting of it",
        "no key of the recipe",
    ],
)
def test_what_is_wrong_with_the_command_is_one_line_before_anything_starts(
    arguments: list[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    save_model_folder(tiny_policy(torch.float32), TOKENIZER, tmp_path / "own")
    monkeypatch.setenv("REWARDFLOW_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(ROOT)
    places = {"OWN": str(tmp_path / "own"), "EMPTY": str(tmp_path / "empty")}
    given = [places.get(word, word) for word in arguments]
    status, _, errors = run_here("evaluate", *given)
    assert status == 1
    lines = errors.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: ") and line in lines[0]
