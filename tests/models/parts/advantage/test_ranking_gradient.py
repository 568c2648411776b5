"""Rankings drawn by scores: Plackett-Luce by enumeration, nDCG by hand, and an unbiased gradient."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
import torch
from torch import Tensor

from models.method.scored import Scored
from models.parts.advantage.ranking import Ranking, ranking_advantages
from models.parts.shared.plackett_luce import discounted_gain, draw_rankings, score_gradient
from tests.support.tiny_models import scored
from tests.support.tiny_resources import make_resources

SCORES = torch.tensor([0.3, -1.2, 0.9, 0.1], dtype=torch.float64)
GAINS = torch.tensor([1.0, 0.0, 3.0, 1.0], dtype=torch.float64)
ALL = torch.tensor(list(permutations(range(4))))


def log_probability(scores: Tensor, ranking: Tensor) -> Tensor:
    """Return the log-probability by its definition: each place is a choice among the items that remain."""
    left, total = list(range(len(scores))), scores.new_zeros(())
    for place in ranking.tolist():
        total = total + scores[place] - torch.stack([scores[other] for other in left]).logsumexp(0)
        left.remove(place)
    return total


def test_rankings_are_drawn_as_often_as_plackett_luce_says() -> None:
    drawn = draw_rankings(SCORES, 40_000, torch.Generator().manual_seed(0))
    for ranking in ALL:
        share = float((drawn == ranking).all(-1).double().mean())
        expected = float(log_probability(SCORES, ranking).exp())
        assert abs(share - expected) < 4 * (expected * (1 - expected) / 40_000) ** 0.5 + 1e-4


def test_the_gradient_of_a_ranking_is_that_of_its_log_probability() -> None:
    by_hand = []
    for ranking in ALL:
        scores = SCORES.clone().requires_grad_()
        by_hand.append(torch.autograd.grad(log_probability(scores, ranking), scores)[0])
    made = score_gradient(SCORES, ALL)
    assert torch.allclose(made, torch.stack(by_hand), atol=1e-12)
    assert torch.allclose(made.sum(-1), torch.zeros(24, dtype=torch.float64), atol=1e-12)


def test_scores_that_are_far_apart_overflow_nothing() -> None:
    far = torch.tensor([2000.0, -2000.0, 0.0, 1e-3])
    made = score_gradient(far, ALL)
    assert torch.isfinite(made).all()
    assert torch.allclose(
        made[(torch.tensor([0, 3, 2, 1]) == ALL).all(-1)][0, [0, 1]], torch.zeros(2).double(), atol=1e-9
    )


def test_the_gain_of_a_ranking_by_hand() -> None:
    first, second, third = 1.0, 1 / torch.log2(torch.tensor(3.0)).item(), 0.5
    rankings = torch.tensor([[2, 0, 3, 1], [1, 3, 0, 2]])
    best = 3 * first + 1 * second
    assert discounted_gain(GAINS, rankings, 2).tolist() == pytest.approx([1.0, second / best])
    whole = 3 * first + second + third
    made = discounted_gain(GAINS, rankings, 10)[1]
    assert float(made) == pytest.approx((second + third + 3 / torch.log2(torch.tensor(5.0)).item()) / whole, rel=1e-6)
    assert discounted_gain(torch.zeros(4), rankings, 2).tolist() == [0.0, 0.0]


def test_the_advantages_are_an_unbiased_gradient_of_the_expected_gain() -> None:
    """The leave-one-out estimate is averaged over all pairs of rankings, weighted by their Plackett-Luce probability.
    The result is the exact gradient of the expected gain."""
    scores = SCORES.clone().requires_grad_()
    chances = torch.stack([log_probability(scores, ranking) for ranking in ALL]).exp()
    worth = discounted_gain(GAINS, ALL, 2)
    (exact,) = torch.autograd.grad((chances * worth).sum(), scores)
    gradient, chance = score_gradient(SCORES, ALL), chances.detach()
    both = 0.5 * (worth[:, None] - worth[None, :])[..., None] * (gradient[:, None] - gradient[None, :])
    expected = (chance[:, None, None] * chance[None, :, None] * both).sum((0, 1))
    assert torch.allclose(expected, exact, atol=1e-12)
    sampled, mean = ranking_advantages(SCORES, GAINS, 2, 60_000, torch.Generator().manual_seed(0))
    assert torch.allclose(sampled, exact, atol=0.006) and abs(float(mean) - float((chance * worth).sum())) < 0.01


def test_with_two_rankings_it_is_the_half_difference_of_worths_times_that_of_gradients() -> None:
    rankings = draw_rankings(SCORES, 2, torch.Generator().manual_seed(3))
    worth, gradient = discounted_gain(GAINS, rankings, 4), score_gradient(SCORES, rankings)
    made, _ = ranking_advantages(SCORES, GAINS, 4, 2, torch.Generator().manual_seed(3))
    assert torch.allclose(made, 0.5 * (worth[0] - worth[1]) * (gradient[0] - gradient[1]), atol=1e-12)


def round_of(rewards: list[float], sizes: list[int]) -> Scored:
    """Return scored completions with different tokens."""
    made = scored(torch.tensor(rewards), sizes)
    rows = [replace(each, completion=(3 + place, 4 + place)) for place, each in enumerate(made.rollouts)]
    return replace(made, rollouts=rows)


def test_those_of_a_group_add_up_to_zero_and_the_best_completion_is_raised() -> None:
    seen = round_of([0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0], [4, 3])
    made = Ranking(rankings=512).of_completions(make_resources(), seen)
    assert made[:4].sum().abs() < 1e-5 and made[4:].tolist() == [0.0, 0.0, 0.0]
    assert made[1] > 0 and made[[0, 2, 3]].max() <= 0
    assert made.equal(Ranking(rankings=512).of_completions(make_resources(), seen))


def test_only_differences_of_negative_rewards_count() -> None:
    part, resources = Ranking(rankings=64), make_resources()
    below = part.of_completions(resources, round_of([-2.0, -1.0, -2.0], [3]))
    assert torch.allclose(below, part.of_completions(resources, round_of([0.0, 1.0, 0.0], [3])))


def test_a_completion_alone_and_a_round_of_none_have_no_advantage() -> None:
    assert Ranking().of_completions(make_resources(), round_of([1.0], [1])).tolist() == [0.0]
