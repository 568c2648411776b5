"""A renamed setting is refused under its old name, and the line states the new name."""

import re

import pytest

from models.base.errors import UserError
from models.recipes.load import load_recipe


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("advantage={name: gae, trace: 0.9}", "advantage.trace: is called gae_lambda now"),
        ("advantage={name: gae, kl: 0.1}", "advantage.kl: is called kl_in_reward now"),
        ("rewards=[{name: win_rate, by: reward_model}]", "rewards.0.by: is called judge now"),
        ("rollouts={name: privileged, tells: answer}", "rollouts.tells: is called shows now"),
        ("rewards=[{name: cost, heard: {small: 0.1}}]", "rewards.0.heard: is called outputs now"),
        ("rewards=[{name: abstention, says: [no]}]", "rewards.0.says: is called abstentions now"),
        ("warm_start.tells=answer", "warm_start.tells: is called shows now"),
    ],
)
def test_a_setting_by_its_old_name_is_refused_with_the_new(override: str, line: str) -> None:
    with pytest.raises(UserError, match=re.escape(line)):
        load_recipe("arithmetic", [override])


def test_the_old_name_means_nothing_to_other_parts() -> None:
    with pytest.raises(UserError, match=r"objective\.trace: unknown key"):
        load_recipe("arithmetic", ["objective.trace=0.9"])
