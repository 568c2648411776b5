"""The recipe of the multi-turn guide: one line changes its estimator, and one number its dense rewards."""

import json
from typing import Any

import pytest

from models.method.problem import Problem
from models.recipes.load import load_recipe

ESTIMATORS = {
    "turns": [],
    "GRPO": ["advantage.name=group_relative"],
    "RLOO": ["advantage.name=leave_one_out", "objective.name=reinforce"],
    "PPO": ["advantage.name=turn_critic"],
}


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("progress", [0.0, 0.5])
def test_every_estimator_takes_either_reward_and_the_switch_is_the_turns_alone(estimator: str, progress: float) -> None:
    overrides = [*ESTIMATORS[estimator], f"rollouts.environment.progress={progress}"]
    recipe: Any = load_recipe("multi_turn_guide", overrides)
    named = dict(override.split("=") for override in ESTIMATORS[estimator])
    assert recipe.advantage.name == named.get("advantage.name", "turn_returns")
    assert recipe.objective.name == named.get("objective.name", "grpo")
    opened = recipe.rollouts.environment.open(Problem("p", "", json.dumps({"grid": ["A..G"]})))
    opened.reset(0)
    rewards = [opened.step("r")[1] for _ in range(3)]
    assert rewards == pytest.approx([progress / 3, progress / 3, 1.0 + progress / 3])
