"""Corrections for stale samples: rounds that were sampled ahead are masked in part, fresh rounds are not masked."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from models.learner.optimiser import OptimiserSettings
from models.method.objective import Objective
from models.parts.objective.dppo import Dppo
from models.parts.objective.grpo import Grpo
from tests.support.tiny_loops import SCHEDULE, SLOTS, run, save_start

EAGER = OptimiserSettings(learning_rate=1e-2, warmup_steps=1)
AHEAD = replace(SCHEDULE, staleness=1, epochs=1, minibatches=1, checkpoint_every=3, optimiser=EAGER)
MASKED: dict[str, Any] = {"kl": 0.0, "importance_rule": "masked", "importance_floor": 0.99, "importance_ceiling": 1.01}


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_start(tmp_path_factory.mktemp("start") / "policy")


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize(
    ("objective", "watched"),
    [
        (Grpo(**MASKED), "importance_masked_share"),
        (Grpo(**MASKED, importance_level="completion"), "importance_masked_share"),
        (Grpo(**MASKED, importance_level="geometric"), "importance_masked_share"),
        (Dppo(region_low=0.001, region_high=0.001), "masked_share"),
    ],
    ids=["token", "completion", "geometric", "dppo"],
)
def test_only_what_is_stale_is_masked(start: Path, tmp_path: Path, objective: Objective, watched: str) -> None:
    _, diary = run(start, tmp_path, schedule=AHEAD, slots=replace(SLOTS, objective=objective))
    shares: dict[float, list[float]] = {0: [], 1: []}
    for values in diary.metrics.values():
        shares[values["rollouts/staleness"]].append(values[f"policy/{watched}"])
    assert max(shares[0]) == 0.0 and min(shares[1]) > 0.1
