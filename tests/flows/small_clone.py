"""A fresh clone with a main recipe so small that it runs in a minute; its candidate is still promoted."""

from pathlib import Path
from typing import Any

import yaml
from project import make_project
from running import type_in

PARAMETERS = {
    "start": [1, 9],
    "operand": [1, 5],
    "value": [-9, 19],
    "problems": {"train": [40, 450], "validation": [10, 60], "gate": [10, 140]},
    "demonstrations": {"train": 6000, "validation": 60},
    "preferences": {"train": 300, "validation": 40},
    "flaws": {
        "demonstrations": {"sign_lost": 0.0, "operand_skipped": 0.6, "slip": 0.2},
        "preferences": {"sign_lost": 0.0, "operand_skipped": 0.5, "slip": 0.5},
    },
}
"""Problems of one and two operations on small numbers, which the small policy learns in half a minute."""
SETTINGS = """
policy:
  precision: float32
  size: {hidden: 96, layers: 2, heads: 4, key_value_heads: 2, feed_forward: 256, positions: 64}
engine: {name: transformers}
warm_start: {steps: 500}
reward_model: {least_accuracy: 0.0, fit: {epochs: 1, batch_pairs: 32}}
rollouts: {prompts: 32, max_tokens: 24}
schedule: {rounds: 50, checkpoint_every: 20, optimiser: {learning_rate: 0.001, warmup_steps: 2}}
evaluation: {problems: 60}
gate:
  problems: 150
  samples: 8
  length_margin: 0.5   # a solution that skips no operation is longer
  capabilities: [greedy_accuracy]   # ten problems of one operation cannot show that 7 points of accuracy are kept
"""
WHO = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "test"), ("EMAIL", "test@localhost"))
}
"""Author and committer of the commits."""


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Return `below` with the entries of `above` merged into it, key by key at every depth."""
    both = [key for key in above if isinstance(below.get(key), dict) and isinstance(above[key], dict)]
    return below | above | {key: merged(below[key], above[key]) for key in both}


def fresh_clone(folder: Path) -> Path:
    """Make a small clone in the state in which a reader has it: clean and with its data pinned.

    Of the data sets, only that of the main recipe is made, because making all of them takes a quarter of an hour.
    """
    make_project(folder)
    params = yaml.safe_load((folder / "params.yaml").read_text())
    params["arithmetic"] |= PARAMETERS
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    recipe = folder / "recipes" / "arithmetic.yaml"
    recipe.write_text(yaml.safe_dump(merged(yaml.safe_load(recipe.read_text()), yaml.safe_load(SETTINGS))))
    made = type_in(["dvc repro prepare", "git add --all", "git commit --message small"], folder, **WHO)
    assert made.returncode == 0, made.stdout + made.stderr
    return folder
