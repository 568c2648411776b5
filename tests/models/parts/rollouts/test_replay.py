"""Replay of earlier rounds: the groups that are replayed, their log-probs, and resumed runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from models.engines.engine import Generated, Sampling
from models.method.memory import Memory, read, written
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.rollouts.replay import Replay
from tests.support.tiny_loops import PROBLEMS
from tests.support.tiny_models import contents
from tests.support.tiny_resources import make_resources

SOURCE = Replay(prompts=2, group_size=2, max_tokens=4, rounds_kept=2, replayed=3)


class Counting:
    """An engine that returns the round's seed and the completion's number as tokens, and log-probs of many digits."""

    def generate(self, prompts: Sequence[tuple[int, ...]], sampling: Sampling, seed: int) -> list[list[Generated]]:
        log_probs = torch.tensor([-0.1 / 3, -seed / 7, -1e-17], dtype=torch.float64)
        return [[Generated((3 + seed % 10, 4 + place, 1), log_probs, True) for place in range(2)] for _ in prompts]


@dataclass
class Remembering:
    """The part of a learner that the source uses."""

    memory: Memory = field(default_factory=list)


def resources(memory: Sequence[list[Rollout]] = ()) -> RunResources:
    engine: Any = Counting()
    learner: Any = Remembering(list(memory))
    return make_resources(engine, seed=0, learner=learner)


def play(there: RunResources, rounds: Sequence[int]) -> list[list[Rollout]]:
    """Return the rollouts of the source in each of `rounds`."""
    return [SOURCE(there, PROBLEMS[2 * (r % 3) : 2 * (r % 3) + 2], r) for r in rounds]


def round_of(rollout: Rollout) -> int:
    return rollout.completion[0] - 3


def test_the_first_round_is_fresh_alone() -> None:
    (first,) = play(resources(), [0])
    assert [rollout.group for rollout in first] == [0, 0, 1, 1] and all(round_of(rollout) == 0 for rollout in first)


def test_replayed_groups_are_whole_of_one_earlier_round_that_is_kept_and_none_comes_twice() -> None:
    for number, rollouts in enumerate(play(resources(), range(6))):
        fresh, again = rollouts[:4], rollouts[4:]
        assert all(round_of(rollout) == number for rollout in fresh)
        assert len(again) == min(3, 2 * min(number, 2)) * 2
        seen = set()
        for place in range(0, len(again), 2):
            first, other = again[place : place + 2]
            assert first.group == other.group == 2 + place // 2
            assert first.problem == other.problem and round_of(first) == round_of(other) in (number - 1, number - 2)
            assert {first.completion[1], other.completion[1]} == {4, 5}
            seen.add((round_of(first), first.problem.id))
        assert len(seen) == len(again) // 2


def test_log_probs_are_those_of_the_round_that_sampled() -> None:
    *_, last = play(resources(), range(6))
    for rollout in last:
        assert rollout.behaviour_log_probs is not None
        assert float(rollout.behaviour_log_probs[1]) == -round_of(rollout) / 7


def test_a_run_that_goes_on_from_what_was_written_replays_exactly_what_the_other_one_did() -> None:
    there = resources()
    whole = play(there, range(6))
    stopped = resources()
    play(stopped, range(3))
    resumed = resources(read(written(stopped.learner.memory), PROBLEMS))
    assert contents(play(resumed, range(3, 6))) == contents(whole[3:])


def test_no_more_rounds_are_remembered_than_are_kept() -> None:
    there = resources()
    play(there, range(5))
    assert [round_of(rollouts[0]) for rollouts in there.learner.memory] == [3, 4]
