"""Stored rollouts: they are read back bit for bit, and a resumed run that replays them ends with equal weights."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from models.method.memory import read, written
from models.method.problem import Problem
from models.method.resources import RunResources
from models.method.rollout import Rollout, RolloutSource
from models.parts.rollouts.sample import Sample
from tests.support.tiny_loops import PROBLEMS, SCHEDULE, SLOTS, run, same_weights, save_start
from tests.support.tiny_models import contents


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_written_and_read_again_is_the_same_to_the_last_bit(dtype: torch.dtype) -> None:
    values = torch.randn(5, dtype=dtype, generator=torch.Generator().manual_seed(0))
    ids, flags = (4, 5, 1), (True, False, True)
    first = Rollout(
        PROBLEMS[2], 1, ids, values[:3], "4 + 5", True, trained=flags, source=RolloutSource(begun=2, privileged=(4, 9))
    )
    second = Rollout(
        PROBLEMS[0],
        0,
        (3,),
        None,
        "3",
        False,
        reference_log_probs=values[3:4],
        source=RolloutSource(origin="chosen", flaw="slip"),
    )
    third = Rollout(PROBLEMS[1], 2, (6,), values[4:].exp(), "6", True)
    memory = [[first, second], [], [second, third]]
    again = read(written(memory), PROBLEMS)
    assert contents(again) == contents(memory)
    assert all(first.problem is two.problem for first, two in zip(again[0], memory[0], strict=True))
    assert read(written([]), PROBLEMS) == []


def test_what_is_read_of_one_round_does_not_keep_the_others() -> None:
    rounds = [[Rollout(PROBLEMS[0], 0, (4, 1), torch.zeros(2), "4", True)] for _ in range(3)]
    for (rollout,) in read(written(rounds), PROBLEMS):
        assert rollout.behaviour_log_probs is not None
        assert rollout.behaviour_log_probs.untyped_storage().nbytes() == 8


@dataclass(frozen=True, kw_only=True)
class AgainAndAgain(Sample):
    """Source of new samples together with those of the two previous rounds."""

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        fresh = super().__call__(resources, problems, round_number)
        memory = resources.learner.memory
        old = [
            replace(rollout, group=rollout.group + 100 * age)
            for age, rollouts in enumerate(memory, 1)
            for rollout in rollouts
        ]
        memory.append(fresh)
        del memory[:-2]
        return fresh + old


@pytest.mark.rotating(of=6)
def test_a_killed_run_that_replays_ends_with_the_weights_of_an_undisturbed_one(tmp_path: Path) -> None:
    start = save_start(tmp_path / "start")
    slots = replace(SLOTS, rollouts=AgainAndAgain(prompts=3, group_size=3, max_tokens=5))
    whole, _ = run(start, tmp_path / "whole", slots=slots)
    run(start, tmp_path / "cut", slots=slots, killed_in=5)
    resumed, diary = run(start, tmp_path / "cut", slots=slots)
    assert diary.resumed == [4] and sorted(diary.metrics) == [5, 6] and SCHEDULE.rounds == 6
    assert same_weights(whole, resumed)
    assert contents(whole.memory) == contents(resumed.memory) and len(whole.memory) == 2
