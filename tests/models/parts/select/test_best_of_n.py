"""The best of N: the completions that are kept, ties, the worst ones, and the distribution of the best of three."""

from itertools import product

import torch

from models.parts.select.best_of_n import BestOfN
from tests.support.tiny_models import scored

REWARDS = torch.tensor([0.1, 0.9, 0.9, 0.4, 0.0, 0.0, 0.0, 0.0])
SIZES = [4, 4]


def test_it_keeps_the_first_of_the_best_of_each_prompt() -> None:
    assert BestOfN()(scored(REWARDS, SIZES)).tolist() == [1, 4]


def test_a_prompt_without_a_completion_that_is_good_enough_is_left_out() -> None:
    assert BestOfN(least=0.5)(scored(REWARDS, SIZES)).tolist() == [1]
    assert BestOfN(least=0.95, worst=3)(scored(REWARDS, SIZES)).tolist() == []


def test_the_worst_are_worth_less_than_the_best_and_at_most_so_many() -> None:
    assert BestOfN(worst=1)(scored(REWARDS, SIZES)).tolist() == [1, 0, 4]
    assert BestOfN(worst=9)(scored(REWARDS, SIZES)).tolist() == [1, 3, 0, 4]
    assert BestOfN(best=2, worst=9)(scored(REWARDS, SIZES)).tolist() == [1, 2, 3, 0, 4, 5]


def test_rounding_does_not_make_a_worst_one() -> None:
    rewards = torch.tensor([1.0, 1.0 - 1e-6])
    assert BestOfN(worst=1)(scored(rewards, [2])).tolist() == [0]


def test_the_best_of_three_is_distributed_as_the_policy_given_that_it_is_right() -> None:
    policy = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    right = torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64)
    kept = torch.zeros(4, dtype=torch.float64)
    for actions in product(range(4), repeat=3):
        drawn = torch.tensor(actions)
        chosen = drawn[BestOfN(least=0.5)(scored(right[drawn], [3]))]
        kept[chosen] += policy[drawn].prod()
    torch.testing.assert_close(kept / kept.sum(), policy * right / (policy * right).sum())


def test_no_completions_are_no_best() -> None:
    assert BestOfN()(scored(torch.zeros(0), [])).tolist() == []
