"""The selector that keeps the completions whose rewards differ most: right and wrong ones, the variance, and ties."""

from itertools import combinations

import pytest
import torch

from models.base.errors import UserError
from models.parts.select.most_spread import MostSpread, widest
from tests.support.tiny_batches import numbers
from tests.support.tiny_models import scored


def test_of_right_and_wrong_as_many_of_each_are_kept_as_far_as_there_are() -> None:
    rewards = numbers(0, 0, 1, 0, 0, 0, 1, 0, 1, 1, 1, 1, 1, 0, 1, 1)
    kept = MostSpread(keep=4)(scored(rewards, [8, 8])).tolist()
    assert kept[:4] == [0, 1, 2, 6] and len(kept) == 8  # both right ones and the first two wrong ones
    assert rewards[kept[4:]].tolist().count(0.0) == 1  # this group has only one wrong completion


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("keep", [1, 2, 3, 5])
def test_no_other_choice_of_as_many_has_a_greater_variance(seed: int, keep: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(7, dtype=torch.float64, generator=generator) ** 3
    best = max(float(values[list(places)].var(unbiased=False)) for places in combinations(range(7), keep))
    chosen = widest(values, keep)
    assert len(chosen.unique()) == keep
    assert float(values[chosen].var(unbiased=False)) == pytest.approx(best, abs=1e-12)


def test_an_outlier_is_kept_with_those_farthest_from_it() -> None:
    assert widest(numbers(0.0, 0.1, 9.0, 0.2, 0.05), 3).tolist() == [0, 2, 4]


def test_groups_that_are_no_larger_stay_whole_and_in_order() -> None:
    rewards = numbers(3, 1, 2, 5, 4)
    assert MostSpread(keep=3)(scored(rewards, [3, 2])).tolist() == [0, 1, 2, 3, 4]
    assert MostSpread(keep=2)(scored(rewards, [3, 2])).tolist() == [0, 1, 3, 4]


def test_of_equals_as_many_are_kept_as_are_asked_for() -> None:
    assert len(set(MostSpread(keep=3)(scored(torch.ones(5), [5])).tolist())) == 3


def test_it_can_judge_by_one_component_and_names_those_that_exist() -> None:
    parts = {"exact": numbers(1, 0, 0, 0), "noise": numbers(0, 5, -5, 0)}
    held = scored(parts["exact"] + parts["noise"], [4], parts)
    assert MostSpread(keep=2, by="noise")(held).tolist() == [1, 2]
    assert 0 in MostSpread(keep=2, by="exact")(held).tolist()
    with pytest.raises(UserError, match="no reward is called judge; there are exact, noise"):
        MostSpread(by="judge")(held)


def test_of_nothing_nothing_is_kept() -> None:
    assert MostSpread()(scored([], [])).tolist() == []
