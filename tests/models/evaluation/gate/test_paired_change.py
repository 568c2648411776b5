"""Two evaluations compared prompt by prompt: the answers that flipped, and the changes of the metrics."""

import math

import numpy as np
import pytest

from models.evaluation.bootstrap import paired_bootstrap
from models.evaluation.flips import flips
from models.evaluation.gate.paired_change import metric_changes
from models.evaluation.records import Completion, PromptRecord


def record(name: str, greedy: bool, right: int = 2, score: float = math.nan) -> PromptRecord:
    samples = tuple(Completion(f"s{number}", 4, number < right, True, score) for number in range(4))
    return PromptRecord(name, 1, samples, Completion("g", 4, greedy, True, score))


def evaluation(seed: int, prompts: int = 40) -> list[PromptRecord]:
    chance = np.random.default_rng(seed)
    return [record(f"p{n}", bool(chance.random() < 0.5), int(chance.integers(0, 5))) for n in range(prompts)]


def test_worse_and_better_swap_when_the_two_are_swapped_and_add_up_to_the_difference() -> None:
    old, new = evaluation(0), evaluation(1)
    said, pairs = flips(old, new)
    back, _ = flips(new, old)
    assert (said.worse, said.better) == (back.better, back.worse)
    change = sum(record.greedy.correct for record in new) - sum(record.greedy.correct for record in old)
    assert len(said.better) - len(said.worse) == change
    assert (said.compared, said.left_out, len(pairs)) == (40, 0, 40)


def test_nothing_flips_against_itself_and_every_interval_is_zero() -> None:
    same = evaluation(2)
    said, pairs = flips(same, same)
    assert not said.worse and not said.better
    for change in metric_changes(["greedy_accuracy", "sampled_accuracy", "pass_at_4"], same, same, pairs):
        assert (change.change.low, change.change.high, change.shown) == (0.0, 0.0, False)


def test_prompts_are_paired_by_what_they_say_where_ids_mean_others() -> None:
    old = [record("1", True), record("2", False), record("3", True)]
    new = [record("1", True), record("2", False), record("9", True)]
    said, pairs = flips(old, new, {"1": "2", "2": "1"})
    assert (said.better, said.worse, said.left_out) == (("1",), ("2",), 2)
    assert [(older.id, newer.id) for older, newer in pairs] == [("2", "1"), ("1", "2")]


def test_the_change_is_paired_over_the_shared_prompts_and_unpaired_where_there_are_none() -> None:
    old, new = evaluation(0), evaluation(1)
    _, pairs = flips(old, new)
    (paired,) = metric_changes(["greedy_accuracy"], old, new, pairs)
    values = [np.array([float(record.greedy.correct) for record in side]) for side in (old, new)]
    assert paired.change == paired_bootstrap(values[1], values[0]) and paired.paired
    assert paired.change.estimate == pytest.approx(paired.after.estimate - paired.before.estimate)
    (alone,) = metric_changes(["greedy_accuracy"], old, new, [])
    assert not alone.paired
    assert alone.change.estimate == pytest.approx(paired.change.estimate)


def test_a_metric_that_one_side_does_not_define_is_left_out() -> None:
    old, new = [record("a", True)], [record("a", True, score=1.0)]
    _, pairs = flips(old, new)
    assert metric_changes(["reward_score"], old, new, pairs) == []
    assert metric_changes(["reward_score"], old, new, []) == []
