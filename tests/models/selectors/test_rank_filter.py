"""What must be true of the filter by rank, each test named as the theorem it checks."""

import pytest
import torch
from tiny_models import scored

from models.selectors.rank_filter import RankFilter, kept_by_rank, r_squared, r_squared_by_filter


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_the_best_the_worst_or_both_of_each_group_stay_in_their_order():
    held = scored(numbers(3, 1, 5, 2, 4, 10, 30, 20), [5, 3])
    assert RankFilter(keep="best", count=2)(held).tolist() == [2, 4, 6, 7]
    assert RankFilter(keep="worst", count=2)(held).tolist() == [1, 3, 5, 7]
    assert RankFilter(keep="both", count=1)(held).tolist() == [1, 2, 5, 6]


def test_where_the_ends_meet_every_completion_stays_once():
    held = scored(numbers(3, 1, 5), [3])
    for keep, count in (("both", 2), ("both", 9), ("best", 3), ("worst", 9)):
        assert RankFilter(keep=keep, count=count)(held).tolist() == [0, 1, 2]


def test_only_the_ranks_matter_and_not_the_distances():
    rewards = torch.randn(8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert torch.equal(kept_by_rank(rewards, "both", 2), kept_by_rank(rewards.exp() * 1e6, "both", 2))


def test_of_equals_as_many_stay_as_are_asked_for():
    assert len(RankFilter(count=2)(scored(torch.ones(6), [6]))) == 4


def test_of_nothing_nothing_is_kept():
    assert RankFilter()(scored([], [])).tolist() == []


def test_r_squared_by_hand():
    # deviations (-1, 0, 1) and (-1, 1, 0): covariance 1, variances 2 and 2
    assert r_squared(numbers(1, 2, 3), numbers(0, 2, 1)) == pytest.approx(1 / 4)


def test_r_squared_is_one_minus_what_the_best_line_leaves():
    generator = torch.Generator().manual_seed(0)
    said = torch.randn(50, dtype=torch.float64, generator=generator)
    real = 0.3 * said + torch.randn(50, dtype=torch.float64, generator=generator)
    columns = torch.stack([said, torch.ones(50, dtype=torch.float64)], dim=1)
    line = torch.linalg.lstsq(columns, real[:, None]).solution
    left = ((columns @ line).squeeze(-1) - real).square().sum() / (real - real.mean()).square().sum()
    assert r_squared(said, real) == pytest.approx(1 - float(left))


def test_r_squared_does_not_see_the_scale_of_either_and_is_zero_where_one_does_not_vary():
    said, real = numbers(1, 2, 3), numbers(0, 2, 1)
    assert r_squared(5 * said - 9, -2 * real) == pytest.approx(r_squared(said, real))
    assert r_squared(said, numbers(1, 1, 1)) == 0.0 and r_squared(numbers(2, 2, 2), real) == 0.0


def test_with_noise_in_the_middle_alone_the_table_of_filters_is_known():
    """Two groups of five; the reward is the truth at both ends and has nothing to do with it in the middle."""
    rewards = torch.tensor([[4, 3, 2, 1, 0], [0, 1, 2, 3, 4]], dtype=torch.float64)
    truth = torch.tensor([[4, 1, 2, 3, 0], [0, 3, 2, 1, 4]], dtype=torch.float64)
    table = r_squared_by_filter(rewards, truth, count=1)
    # all: covariance (2*2 - 1*1 + 0 - 1*1 + 2*2) = 6 of 10 a group; both ends: the points (4, 4) and (0, 0)
    assert table == pytest.approx({"all": 0.36, "both": 1.0, "best": 0.0, "worst": 0.0})
    # two at each end: (4, 4), (3, 1), (1, 3), (0, 0) is again 6 of 10; (4, 4), (3, 1) is a line
    assert r_squared_by_filter(rewards, truth, count=2) == pytest.approx(
        {"all": 0.36, "both": 0.36, "best": 1.0, "worst": 1.0}
    )


def test_with_noise_at_the_low_end_alone_the_best_are_to_be_trusted_and_the_worst_are_not():
    rewards = torch.tensor([[5, 4, 1, 0], [9, 7, 1, 0]], dtype=torch.float64)
    truth = torch.tensor([[5, 4, 0, 1], [9, 7, 0, 1]], dtype=torch.float64)
    table = r_squared_by_filter(rewards, truth, count=2)
    assert table["best"] == pytest.approx(1.0) and table["worst"] == pytest.approx(1.0)  # a line may fall
    truth[1, 2:] = numbers(1, 0)  # now the low end agrees in one group and not in the other
    table = r_squared_by_filter(rewards, truth, count=2)
    assert table["best"] == pytest.approx(1.0) and table["worst"] == 0.0 and table["worst"] < table["all"] < 1.0


def test_under_a_noise_of_known_variance_the_table_is_what_the_variances_say():
    """Truths at sevenths from -1 to 1. The four in the middle get rewards that know nothing of them; the two at each
    end get their truth and a little noise, too little to change places with the middle."""
    generator = torch.Generator().manual_seed(0)
    truth = (torch.tensor([-7, -5, -3, -1, 1, 3, 5, 7], dtype=torch.float64) / 7).repeat(4000, 1)
    even = 2 * torch.rand(4000, 8, dtype=torch.float64, generator=generator) - 1
    middle = truth.abs() < 0.5
    rewards = torch.where(middle, even / 2, truth + 0.17 * even)
    table = r_squared_by_filter(rewards, truth, count=2)
    noise, ends, whole = 0.17**2 / 3, 2 * (25 + 49) / 49, 2 * (1 + 9 + 25 + 49) / 49  # sums of squares but the first
    end = 2 * (1 / 7) ** 2
    assert table == pytest.approx(
        {
            "all": ends**2 / (whole * (ends + 4 * noise + 4 / 12)),
            "both": ends / (ends + 4 * noise),
            "best": end / (end + 2 * noise),
            "worst": end / (end + 2 * noise),
        },
        abs=0.02,
    )
    assert table["both"] > 0.98 > table["all"] + 0.15 > table["best"] + 0.2
