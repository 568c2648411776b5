"""Self-play of the recipe `self_play_kuhn`, trained to its end: its average policy is close to an equilibrium."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.league.agents import as_trained
from benchmarks.league.training import train
from benchmarks.shared.warm_starts import Work

AN_EQUILIBRIUM_OR_NEARLY = 0.05
"""Antes per seat that a best response wins against the average policy; against a random player it wins 0.458."""


@pytest.mark.thorough
def test_the_average_of_self_play_can_hardly_be_exploited(tmp_path: Path) -> None:
    recipe: Any = as_trained("self_play_kuhn", seed=0)
    rounds = train(Work(tmp_path, recipe.data.name), recipe, points=1).rounds
    exploited = [-metrics["reward/exploited_average"] for metrics in rounds]
    assert exploited[0] > 0.12, "the warm start is no equilibrium already"
    assert max(exploited[-10:]) < AN_EQUILIBRIUM_OR_NEARLY
