"""The filter by rank: the best, the worst or both of each group, ties, and random additions."""

import torch

from models.learner.packing import Sequences
from models.parts.select.rank_filter import Filter, RankFilter, kept_by_rank
from tests.support.tiny_batches import numbers
from tests.support.tiny_models import scored


def test_the_best_the_worst_or_both_of_each_group_stay_in_their_order() -> None:
    held = scored(numbers(3, 1, 5, 2, 4, 10, 30, 20), [5, 3])
    assert RankFilter(keep="best", count=2)(held).tolist() == [2, 4, 6, 7]
    assert RankFilter(keep="worst", count=2)(held).tolist() == [1, 3, 5, 7]
    assert RankFilter(keep="both", count=1)(held).tolist() == [1, 2, 5, 6]


def test_where_the_ends_meet_every_completion_stays_once() -> None:
    held = scored(numbers(3, 1, 5), [3])
    cases: list[tuple[Filter, int]] = [("both", 2), ("both", 9), ("best", 3), ("worst", 9)]
    for keep, count in cases:
        assert RankFilter(keep=keep, count=count)(held).tolist() == [0, 1, 2]


def test_only_the_ranks_matter_and_not_the_distances() -> None:
    rewards = torch.randn(8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert torch.equal(kept_by_rank(rewards, "both", 2), kept_by_rank(rewards.exp() * 1e6, "both", 2))


def test_of_equals_as_many_stay_as_are_asked_for() -> None:
    assert len(RankFilter(count=2)(scored(torch.ones(6), [6]))) == 4


def test_of_nothing_nothing_is_kept() -> None:
    assert RankFilter()(scored([], [])).tolist() == []


def test_the_best_and_some_by_chance_hold_the_best_and_no_completion_twice() -> None:
    held = scored(numbers(3, 1, 5, 2, 4, 10, 30, 20), [5, 3])
    kept = RankFilter(keep="best_random", count=1)(held).tolist()
    assert {2, 6} < set(kept) and len(kept) == len(set(kept)) == 4 and kept == sorted(kept)
    assert RankFilter(keep="best_random", count=9)(held).tolist() == list(range(8))


def test_each_of_the_others_has_the_same_chance_whatever_it_is_worth() -> None:
    rewards, times = numbers(7, 3, 1, 5, 2, 4, 6, 0), torch.zeros(8)
    for seed in range(4000):
        times[kept_by_rank(rewards, "best_random", 2, seed)] += 1
    assert times[0] == times[6] == 4000
    others = times[[1, 2, 3, 4, 5, 7]]
    assert ((others - 4000 / 3).abs() < 4 * (4000 * 2 / 9) ** 0.5).all()


def test_chance_hangs_on_the_group_itself_and_not_on_where_it_stands() -> None:
    words = Sequences([[3]] * 16, [[place, 1] for place in range(2, 18)])
    held = scored(torch.zeros(16), [8, 8], sequences=words)
    chosen = RankFilter(keep="best_random", count=2)
    kept = chosen(held).tolist()
    assert chosen(held).tolist() == kept
    turned = held.take(torch.tensor([*range(8, 16), *range(8)]))
    assert sorted((index + 8) % 16 for index in chosen(turned).tolist()) == kept
    drawn = {tuple(kept_by_rank(torch.zeros(8), "best_random", 2, seed).tolist()) for seed in range(40)}
    assert len(drawn) > 5
