"""Steps of the recipes for real models, run small, with a tiny base of the same architecture and real rows."""

import logging
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from small_steps import context

from models.base.sections import Sections
from models.datasets.prepare import prepare
from models.recipes.load import load_recipe
from models.recipes.smoke import made_small
from tasks.compute import shared_engine
from tasks.registered.policy import policy_of_step
from tasks.registered.reward_model import made_reward_model
from tasks.runner.step import StepResult
from tasks.steps import evaluate, fine_tune, fit_reward_model, warm_start
from tasks.tracking import runs
from tests.support.real_models import RECIPES, data_of, save_tiny_qwen

pytestmark = [pytest.mark.slow, pytest.mark.rotating(of=8)]


@pytest.mark.parametrize("file", [file for file in RECIPES if "06b" in file.stem], ids=lambda file: file.stem)
def test_every_step_of_a_recipe_for_a_real_model_goes_through(
    file: Path, shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_store: Callable[[Path], Path]
) -> None:
    for module in (warm_start, fit_reward_model, fine_tune, evaluate):  # outside of a flow, a task has no logger
        monkeypatch.setattr(module, "get_run_logger", lambda: logging.getLogger("steps"))
    monkeypatch.setattr(shared_engine, "gpu_slot", nullcontext)
    home = new_store(tmp_path / "home")
    base = save_tiny_qwen(tmp_path / "Qwen3-tiny")
    given = [f"policy.base={base}", *data_of(file, shared_data), "data.limit=80"]
    recipe = load_recipe(file, made_small(file, given))
    parent = runs.open_flow_run(recipe.name, "a flow")
    prepare(recipe.data, tmp_path / "validated" / "clean")
    made: dict[str, Any] = {"key": "k", "digest": "d", "headline": "", "metrics": {}, "run_id": parent, "seconds": 0.0}
    validated = StepResult(step="validate", folder=str(tmp_path / "validated"), **made)

    def run(task: Any, sections: type[Sections], *inputs: object) -> StepResult:
        result: StepResult = task.fn(context(home, task.name, f"{task.name}-key", parent, sections(recipe)), *inputs)
        return result

    warmed = run(warm_start.warm_start, warm_start.WarmStartSections, validated)
    rewarded = None
    if recipe.reward_model is not None:
        rewarded = run(fit_reward_model.reward_model, fit_reward_model.RewardModelSections, validated, warmed)
        assert rewarded.headline.startswith("pair accuracy")
    if recipe.schedule is None:
        return
    tuned = run(fine_tune.fine_tune, fine_tune.FineTuneSections, validated, warmed, rewarded, {})
    assert "in 2 rounds" in tuned.headline and tuned.metrics["update/changed_share"] > 0
    judges = (made_reward_model(rewarded), warmed)
    measured = run(evaluate.evaluate_policy, evaluate.ShownSections, policy_of_step(tuned), validated, *judges)
    assert "eval/sampled_accuracy" in measured.metrics
