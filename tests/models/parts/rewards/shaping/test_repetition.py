"""The penalty for repetition: values by hand, agreement with the published loop, and text of an environment."""

from dataclasses import replace

import pytest
import torch

from models.method.episode import Turn
from models.method.problem import Problem
from models.method.rollout import Rollout
from models.parts.rewards.shaping.repetition import Repetition, repeated
from tests.support.tiny_resources import make_resources


def rollout(ids: list[int]) -> Rollout:
    return Rollout(Problem("p", "", "7"), 0, tuple(ids), torch.zeros(len(ids)), "", True)


def row(ids: list[int], n: int, each: float = 0.5) -> list[float]:
    values: list[float] = Repetition(n=n, each=each).tokens(make_resources(), [rollout(ids)])[0].tolist()
    return values


def as_published(ids: list[int], n: int) -> list[bool]:
    """Return the marks of the paper's loop, in which a repeated run marks all of its tokens."""
    seen, flags = set(), [False] * len(ids)
    for start in range(len(ids) - n + 1):
        run = str(ids[start : start + n])
        if run in seen:
            for place in range(start, start + n):
                flags[place] = True
        seen.add(run)
    return flags


def test_by_hand() -> None:
    assert row([1, 2, 3, 1, 2, 4], n=2) == [0.0, 0.0, 0.0, -0.5, -0.5, 0.0]
    assert row([1, 2, 3, 1, 2, 4], n=3) == [0.0] * 6
    assert row([1, 2, 1, 2, 1], n=2) == [0.0, 0.0, -0.5, -0.5, -0.5]


def test_a_token_of_several_repeated_runs_costs_once_and_overlapping_runs_repeat_each_other() -> None:
    assert row([5] * 6, n=2) == [0.0] + [-0.5] * 5


def test_a_run_of_a_single_token_charges_every_token_but_its_first_appearance() -> None:
    assert row([1, 2, 1, 1, 3, 2], n=1) == [0.0, 0.0, -0.5, -0.5, 0.0, -0.5]


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_it_marks_what_the_published_loop_marks(n: int) -> None:
    generator = torch.Generator().manual_seed(n)
    for _ in range(40):
        ids = torch.randint(0, 3, (30,), generator=generator).tolist()
        assert repeated(ids, n) == as_published(ids, n)


def test_the_whole_penalty_never_exceeds_its_price_times_the_tokens_and_is_their_sum() -> None:
    part, made = Repetition(n=2, each=0.05), rollout([5] * 41)
    assert float(part(make_resources(), [made])[0]) == pytest.approx(-0.05 * 40)


def test_what_an_environment_repeats_costs_nothing_and_is_passed_over() -> None:
    made = replace(
        rollout([1, 2, 9, 9, 9, 9, 1, 2]),
        episode=replace(rollout([1, 2, 9, 9, 9, 9, 1, 2]).episode, turns=(Turn(0, 2), Turn(6, 8))),
    )
    assert Repetition(n=2, each=0.5).tokens(make_resources(), [made])[0].tolist() == [0.0] * 6 + [-0.5] * 2


@pytest.mark.parametrize("ids", [[], [3], [3, 4], [7] * 50_000, list(range(50_000))])
def test_nothing_of_any_length_breaks_it(ids: list[int]) -> None:
    values = row(ids, n=40, each=0.05)
    assert len(values) == len(ids) and all(value in (0.0, pytest.approx(-0.05)) for value in values[:100])
