"""The loss over all pairs with strengths: soft DPO and DPO as limits, and its optimum for any group."""

import math
from itertools import combinations

import pytest
import torch

from models.parts.objective.dpo import Dpo
from models.parts.objective.osp import Osp
from models.parts.objective.soft_dpo import SoftDpo
from tests.support.enumerable_pairs import PAIRS, REFERENCE, REWARDS, batch_of_lists, batch_of_pairs, losses, optimum

LOGITS = torch.tensor([1.5, -0.3, 0.4, -2.0], dtype=torch.float64)


def test_of_two_completions_it_is_soft_dpo_with_strengths() -> None:
    reward = REWARDS[PAIRS.flatten()]
    seen = batch_of_pairs(PAIRS, reward=reward)
    loss, _ = Osp(beta=0.4, temperature=0.7)(LOGITS.log_softmax(0)[PAIRS].flatten(), seen)
    torch.testing.assert_close(loss, losses(SoftDpo(beta=0.4, temperature=0.7), LOGITS, reward=reward))


def test_where_the_strengths_are_certain_it_is_the_mean_of_dpo_over_all_pairs() -> None:
    better_first = [2, 0, 3, 1]  # rewards so far apart that every label is 1
    reward = [3000.0, 2000.0, 1000.0, 0.0]
    log_prob = LOGITS.log_softmax(0)
    seen = batch_of_lists(reward, REFERENCE[better_first].tolist(), [0] * 4)
    loss, _ = Osp(beta=0.4)(log_prob[better_first], seen)
    pairs = torch.tensor(list(combinations(better_first, 2)))
    torch.testing.assert_close(loss, losses(Dpo(beta=0.4), LOGITS, pairs).mean()[None])


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_any_group_is_content_at_the_optimum_of_reward_less_kl_whoever_drew_it(temperature: float) -> None:
    """The gradient is zero in every group, not only on average, so the completions may have any distribution."""
    objective, best = Osp(beta=0.6, temperature=temperature), optimum(0.6 * temperature).log_softmax(0)
    for drawn in ([0, 1, 2, 3], [3, 3, 0], [1, 2], [2, 2, 2, 0, 1]):
        log_prob = best[drawn].clone().requires_grad_()
        seen = batch_of_lists(REWARDS[drawn].tolist(), REFERENCE[drawn].tolist(), [0] * len(drawn))
        (gradient,) = torch.autograd.grad(objective(log_prob, seen)[0].sum(), log_prob)
        torch.testing.assert_close(gradient, torch.zeros_like(gradient))


def test_a_group_by_hand() -> None:
    # margins ln 2, ln 2, 0 of the pairs (0, 1), (0, 2), (1, 2); rewards ln 3, 0, 0: strengths 3/4, 3/4, 1/2
    seen = batch_of_lists([math.log(3), 0.0, 0.0, 5.0], [-2.0, -1.0, -3.0, -1.0], [0, 0, 0, 1])
    log_prob = torch.tensor([-2.0 + math.log(2), -1.0, -3.0, 0.0], dtype=torch.float64)
    loss, watch = Osp(beta=1.0)(log_prob, seen)
    apart = 0.75 * math.log(3 / 2) + 0.25 * math.log(3)
    assert loss.tolist() == pytest.approx([(2 * apart + math.log(2)) / 3, 0.0])
    assert watch["ordered_share"].tolist() == pytest.approx([2 / 3, 0.0])
    assert watch["strength"].tolist() == pytest.approx([2 / 3, 0.0])


def test_equals_are_drawn_together() -> None:
    log_prob = torch.tensor([-1.0, -3.0], dtype=torch.float64, requires_grad=True)
    loss, _ = Osp(beta=1.0)(log_prob, batch_of_lists([0.5, 0.5], [-2.0, -2.0], [0, 0]))
    loss.sum().backward()
    half = math.tanh(1.0) / 2  # slope of the loss with strength 1/2 at a margin of 2
    torch.testing.assert_close(log_prob.grad, torch.tensor([half, -half], dtype=torch.float64))
