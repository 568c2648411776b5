"""Step that makes pairs by a jury: the pairs agree with the judge, tested with a real engine, judge and store."""

import logging
from contextlib import nullcontext

import pytest
from small_steps import context, warm_started

from models.base.errors import UserError
from models.datasets.schema import read_rows
from models.recipes.load import load_recipe
from models.reward_models.judges.local import LocalJudge
from models.reward_models.judges.settings import JudgeSettings
from models.reward_models.judges.verdict import score
from tasks.compute import shared_engine
from tasks.registered.policy import given_policy
from tasks.runner.step import earlier_result
from tasks.steps import fit_reward_model
from tasks.steps import label_pairs as step
from tests.support.tiny_judges import save_judge

RECIPE = """
reward_model:
  least_accuracy: 0
  fit: {steps: 1}
  pairs:
    problems: 2
    held_out: 2
    samples: 8
    cut: true
    jury: {name: judge_score, template: "{completion} = {prompt}", lowest: 0, highest: 16}
judge: {path: judge, max_tokens: 4, temperature: 0}
rewards: {name: reward_model}
rollouts: {name: sample, prompts: 3, group_size: 2, max_tokens: 5}
engine: {name: transformers}
policy: {precision: float32, size: {positions: 64}}
"""


@pytest.fixture
def inputs(tmp_path, monkeypatch, new_store):
    monkeypatch.chdir(tmp_path)
    new_store(tmp_path / "home")
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    # outside of a flow, Prefect provides neither a logger nor the slot on the GPU
    for module in (step, fit_reward_model):
        monkeypatch.setattr(module, "get_run_logger", lambda: logging.getLogger("pairs"))
    monkeypatch.setattr(shared_engine, "gpu_slot", nullcontext)
    return warm_started(tmp_path)


def handed(inputs, *overrides):
    """Return the step's arguments."""
    sections = step.JurySections(load_recipe("tiny.yaml", list(overrides)))
    given = context(inputs["home"], "label_pairs", "k" * 64, inputs["run"], sections)
    return given, inputs["validated"], inputs["warmed"], {"judge": given_policy("judge")}


@pytest.mark.rotating(of=6)
def test_pairs_are_what_the_judge_says_of_what_the_policy_wrote_and_a_reward_model_is_fitted_to_them(inputs, tmp_path):
    folder = save_judge(tmp_path / "judge", {f"{number} =": f"#### {number}" for number in range(3, 14)})
    given, *rest = handed(inputs)
    made = step.label_pairs.fn(given, *rest)
    counted = {name.removeprefix("label_pairs/"): value for name, value in made.metrics.items()}
    assert counted["asked"] == sum(counted[fate] for fate in step.FATES) and counted["kept"] == counted["agreed"] > 0
    assert "kept" in made.headline and earlier_result(given).digest == made.digest

    judge = LocalJudge(folder, JudgeSettings(max_tokens=4, temperature=0.0), 0)
    rows = read_rows(given.folder, "preferences", "train")
    assert len(rows) == counted["kept"] and len({row["id"] for row in rows}) == len(rows)
    for row in rows:
        held = judge.ask([f"{row[side]} = {row['prompt']}" for side in ("chosen", "rejected")])
        better, worse = (score(answer, 0, 16) for (answer,) in held)
        assert better > worse

    sections = fit_reward_model.RewardModelSections(load_recipe("tiny.yaml"))
    fitting = context(inputs["home"], "reward_model", "r" * 64, inputs["run"], sections)
    fitted = fit_reward_model.reward_model.fn(fitting, *rest[:2], made)
    assert 0.0 <= fitted.metrics["reward_model/pair_accuracy"] <= 1.0
    with pytest.raises(UserError, match="has 0 train"):  # the data contain no preferences
        fit_reward_model.reward_model.fn(fitting, *rest[:2])


def test_a_jury_that_agrees_on_nothing_stops_the_run_with_the_counts(inputs, tmp_path):
    save_judge(tmp_path / "judge", {"1 =": "2"}, steps=1)
    with pytest.raises(UserError, match=r"the jury agrees on none of \d+ pairs of train \(0 agreed,"):
        step.label_pairs.fn(*handed(inputs))
