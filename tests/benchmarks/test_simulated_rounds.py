"""Tests of rounds on a simulated clock: seconds, dropped groups and lengths, in step and with rounds ahead."""

import pytest

from benchmarks.shared.batches import tail
from benchmarks.speed.simulated_rounds import Plant, simulate

PLANT = Plant(engines=2, room=32, step=0.01, each=0.001, learn=1.0, prompts=8)
EVEN = [(100,) * 8]
LONG = [tail(8, shortest=24, longest=1024, seed=seed) for seed in range(50)]
GENERATED = 100 * (0.01 + 32 * 0.001)
"""Seconds that two full engines take for a round of completions of equal length."""


def test_in_step_a_round_takes_as_long_as_engines_and_learner_after_one_another() -> None:
    assert simulate(PLANT, EVEN, 0, 20, drops=False).seconds == pytest.approx(GENERATED + PLANT.learn)


@pytest.mark.parametrize("learn", [1.0, 9.0])
def test_a_round_ahead_it_takes_as_long_as_the_slower_of_the_two(learn: float) -> None:
    plant = Plant(2, 32, 0.01, 0.001, learn, 8)
    assert simulate(plant, EVEN, 1, 200, drops=False).seconds == pytest.approx(max(GENERATED, learn), rel=1e-2)


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("age", [1, 2, 4, 8])
def test_even_lengths_gain_nothing_further_and_drop_nothing(age: int, drops: bool) -> None:
    made = simulate(PLANT, EVEN, age, 40, drops=drops)
    assert made.seconds == pytest.approx(max(GENERATED, PLANT.learn), rel=5e-2)
    assert (made.dropped, made.length) == (0, 100)


@pytest.mark.rotating(of=6)
def test_the_older_tokens_may_be_the_less_of_a_long_tail_is_dropped_and_no_round_beats_its_learner() -> None:
    in_step = simulate(PLANT, LONG, 0, 120, drops=True)
    made = {age: simulate(PLANT, LONG, age, 120, drops=True) for age in (2, 8, 40)}
    assert in_step.dropped == 0 and made[40].dropped == 0
    assert made[2].dropped > made[8].dropped > 0
    assert made[2].length < made[8].length < in_step.length
    assert all(PLANT.learn * 0.999 <= run.seconds < in_step.seconds / 2 for run in made.values())


@pytest.mark.rotating(of=8)
@pytest.mark.parametrize("age", [2, 4, 8])
def test_waiting_drops_nothing_and_trains_on_what_is_written(age: int) -> None:
    in_step = simulate(PLANT, LONG, 0, 120, drops=False)
    waiting = simulate(PLANT, LONG, age, 120, drops=False)
    assert waiting.dropped == 0 and waiting.length == pytest.approx(in_step.length, rel=1e-12)
    assert PLANT.learn * 0.999 <= waiting.seconds < in_step.seconds
