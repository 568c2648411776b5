"""Bounds of settings: a recipe with a value that would reverse a loss or switch it off is refused."""

import re
from pathlib import Path

import pytest

from models.base.errors import UserError
from models.recipes.load import load_recipe

PAIRS = "rollouts: {group_size: 2}\nselect: {name: drop_flat}\nadvantage: {name: none}\n"


@pytest.mark.parametrize(
    ("objective", "key"),
    [
        ("{name: dpo, beta: -1}", "beta"),
        ("{name: dpo, beta: 0}", "beta"),
        *(
            (f"{{name: {name}, {key}: {value}}}", key)
            for name in ("grpo", "chord", "multiple_importance")  # the last two inherit the settings of the first
            for key, value in (("clip_low", -0.1), ("clip_high", -0.1), ("kl", -0.01), ("importance_ceiling", 0))
        ),
        ("{name: p3o, importance_ceiling: 0}", "importance_ceiling"),
        *(
            (f"{{name: {name}, {key}: -0.1}}", key)
            for name, key in (("simpo", "gamma"), ("orpo", "beta"), ("cpo", "sft"))
        ),
        ("{name: exo, label_smoothing: 0}", "label_smoothing"),
        ("{name: ld_dpo, tail: -0.1}", "tail"),
        ("{name: f_dpo, alpha: 0}", "alpha"),
    ],
)
def test_a_setting_out_of_its_bounds_is_one_line_that_names_its_key(tmp_path: Path, objective: str, key: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"{PAIRS}objective: {objective}")
    with pytest.raises(UserError, match=rf"objective\.{re.escape(key)}: Input should be greater than") as caught:
        load_recipe(file)
    assert "\n" not in str(caught.value) and str(file) in str(caught.value)
