"""The resources that parts receive: they are complete, and their readings are those of the current policy."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from models.method.problem import Problem
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.rollouts.sample import Sample
from models.parts.select.everything import Everything
from tests.support.tiny_loops import SCHEDULE, SLOTS, run, save_start
from tests.support.tiny_resources import CODEC


def test_a_world_is_complete_or_is_not_made() -> None:
    with pytest.raises(TypeError, match=r"learner.*readings"):
        cast(Any, RunResources)(CODEC, None, None, 7)


@dataclass(frozen=True, kw_only=True)
class Rereading(Sample):
    """Source that records, in every round, the policy's log-probs of one completion of the first round."""

    said: list[list[float]] = field(default_factory=list)
    budgets: list[int] = field(default_factory=list)

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        made = super().__call__(resources, problems, round_number)
        resources.learner.memory[:] = resources.learner.memory or [made[:1]]
        self.said.append(resources.readings.policy(resources.learner.memory[0])[0].tolist())
        self.budgets.append(resources.token_budget)
        return made


def test_no_round_is_shown_what_the_policy_said_before_it_moved(tmp_path: Path) -> None:
    source = Rereading(prompts=2, group_size=4, max_tokens=4)
    schedule = replace(SCHEDULE, rounds=3, minibatches=1, epochs=1, token_budget=64)
    slots = replace(SLOTS, rollouts=source, select=[Everything()])
    run(save_start(tmp_path / "start"), tmp_path / "checkpoints", schedule=schedule, slots=slots)
    first, second, third = source.said
    assert first != second and second != third
    assert source.budgets == [64] * 3
