"""Simulated label noise: the share of flipped pairs, and its dependence on the problem and the seed only."""

from collections.abc import Sequence
from typing import Any

import pytest
from torch import Tensor

from models.method.problem import Origin, Problem
from models.method.rollout import Rollout, RolloutSource
from models.parts.rewards.shaping.flipped_labels import FlippedLabels, is_flipped
from models.parts.rewards.shaping.of_origin import OfOrigin
from tests.support.tiny_resources import make_resources


def pair(number: int) -> list[Rollout]:
    problem = Problem(f"p{number}", "")
    origins: tuple[Origin, ...] = ("chosen", "rejected")
    return [Rollout(problem, number, (1,), None, "", True, source=RolloutSource(origin=origin)) for origin in origins]


RESOURCES = make_resources()
PAIRS = [rollout for number in range(4000) for rollout in pair(number)]


def labels(rollouts: Sequence[Rollout] = PAIRS, **settings: Any) -> Tensor:
    return FlippedLabels(**settings)(RESOURCES, rollouts).reshape(-1, 2)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_the_share_of_flipped_pairs_is_the_one_asked_for(share: float) -> None:
    assert float(labels(share=share)[:, 1].mean()) == pytest.approx(share, abs=4 * (share * (1 - share) / 4000) ** 0.5)


def test_one_answer_of_each_pair_is_better_whether_flipped_or_not() -> None:
    assert (labels(share=0.3).sum(-1) == 1).all()


def test_a_share_of_zero_says_what_the_data_say_and_one_the_opposite() -> None:
    truth = OfOrigin()(RESOURCES, PAIRS).reshape(-1, 2)
    assert (labels(share=0.0) == truth).all() and (labels(share=1.0) == truth.flip(-1)).all()


def test_the_same_pairs_are_flipped_in_whatever_order_they_come() -> None:
    back = [rollout for start in range(len(PAIRS) - 2, -1, -2) for rollout in PAIRS[start : start + 2]]
    assert (labels(back) == labels().flip(0)).all()


def test_a_larger_share_flips_more_of_the_same_pairs_and_another_seed_flips_others() -> None:
    few, many = labels(share=0.1)[:, 1], labels(share=0.3)[:, 1]
    assert (many >= few).all() and many.sum() > few.sum()
    assert (labels(share=0.3, seed=1)[:, 1] != many).any()


def test_sampled_completions_are_worth_nothing_even_where_labels_are_flipped() -> None:
    drawn = [Rollout(Problem(f"p{number}", ""), number, (1,), None, "", True) for number in range(50)]
    assert any(is_flipped(rollout.problem.id, 0.3, 0) for rollout in drawn)
    assert FlippedLabels()(RESOURCES, drawn).sum() == 0
