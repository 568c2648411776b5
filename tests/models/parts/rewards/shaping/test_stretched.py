"""The reward `stretched`: values by hand, limits, groups apart, and its effect on advantages."""

import pytest
import torch

from models.base.errors import UserError
from models.parts.rewards.shaping.stretched import Stretched
from models.parts.shared.group_statistics import group_mean
from tests.support.tiny_judges import rollouts
from tests.support.tiny_resources import make_resources

HERE = make_resources()
FOUR = rollouts("a", "b", "c", "d")


def stretched(values: list[float], groups: int = 1) -> list[float]:
    made = [each for number in range(groups) for each in rollouts(*"abcdefgh"[: len(values) // groups], group=number)]
    result: list[float] = Stretched().blend(HERE, made, {"similarity": torch.tensor(values)}).tolist()
    return result


def test_the_values_by_hand() -> None:
    assert stretched([0.5, 0.6]) == pytest.approx([0.3, 0.8])  # k = 5
    assert stretched([0.4, 0.5, 0.6, 0.5]) == pytest.approx([0.25, 0.5, 0.75, 0.5])  # k = 2.5
    assert stretched([0.9, 1.0]) == pytest.approx([0.7, 1.0])  # cut at 1


def test_equal_values_wide_groups_and_rounding_errors_are_left() -> None:
    assert stretched([0.7, 0.7, 0.7]) == pytest.approx([0.7] * 3)
    assert stretched([0.1, 0.9, 0.3]) == pytest.approx([0.1, 0.9, 0.3])
    nearly = stretched([0.7, 0.7 + 1e-6])
    assert abs(nearly[1] - nearly[0]) < 2e-5


def test_groups_are_apart_and_their_order_and_means_are_kept() -> None:
    values = [0.50, 0.52, 0.51, 0.2, 0.4, 0.3]
    made = stretched(values, groups=2)
    assert made == pytest.approx([*stretched(values[:3]), *stretched(values[3:])])
    groups = torch.tensor([0, 0, 0, 1, 1, 1])
    assert torch.allclose(group_mean(torch.tensor(made), groups), group_mean(torch.tensor(values), groups))
    assert torch.tensor(made[:3]).argsort().tolist() == [0, 2, 1]


def test_next_to_a_rule_it_decides_where_the_rule_is_equal() -> None:
    """Of the wrong answers the more similar gets the larger share of the spread, which it lacked before."""
    rule, similarity = torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.tensor([1.0, 0.84, 0.80, 0.80])
    plain, total = rule + similarity, rule + Stretched(most=5.0).blend(HERE, FOUR, {"similarity": similarity})
    for sums in (plain, total):
        assert sums.argmax() == 0
    share = [float((sums[1] - sums[2]) / (sums.max() - sums.min())) for sums in (plain, total)]
    assert share[1] > 2 * share[0]


def test_the_dispersion_counts_each_group_once() -> None:
    made = [*rollouts("a", "b", "c", group=0), *rollouts("a", group=1)]
    watched = Stretched().watched(made, {"similarity": torch.tensor([0.2, 0.4, 0.3, 0.9])})
    assert watched == pytest.approx({"dispersion": 0.1})


def test_it_needs_the_other_reward_before_it() -> None:
    with pytest.raises(UserError, match="reward stretched: no reward before it is called similarity; there are coin"):
        Stretched().blend(HERE, FOUR, {"coin": torch.zeros(4)})
    assert Stretched().made_of == ("similarity",)
