"""What must be true of balanced weights, each test named as the theorem it checks."""

from itertools import product

import pytest
import torch
from tiny_models import scored

from models.advantages.balanced import Balanced
from models.loop.rollout import TokenBatch
from models.objectives.weighted_likelihood import WeightedLikelihood
from models.selectors.best_of_n import BestOfN

RIGHT = torch.tensor([1.0, 0.0, 0.0, 1.0], dtype=torch.float64)
LOGITS = torch.tensor([0.3, -0.2, 0.9, 0.0], dtype=torch.float64)


def test_by_hand():
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0], dtype=torch.float64)
    found = Balanced()(None, scored(rewards, [4, 4]))
    wanted = torch.tensor([1.0, -1 / 3, -1 / 3, -1 / 3, 1.0, 1.0, 1.0, -3.0], dtype=torch.float64)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(Balanced(strength=0.5)(None, scored(rewards, [4, 4]))[1:4], wanted[1:4] / 2)


def test_in_a_whole_group_it_is_reward_less_mean_divided_by_the_share_of_failures():
    rewards = torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(Balanced()(None, scored(rewards, [5])), (rewards - 0.4) / 0.6)


def test_a_flat_group_and_a_completion_alone_are_cloned():
    assert Balanced()(None, scored(torch.tensor([0.3, 0.3, 0.3, 0.7]), [3, 1])).tolist() == [1.0] * 4


def test_rounding_makes_nothing_wrong():
    assert Balanced()(None, scored(torch.tensor([0.3, 0.3 - 1e-6, 0.3]), [3])).tolist() == [1.0] * 3


def expected_gradient(select, strength):
    """Mean gradient of the loss over all groups of three in which something is right, and with strength also wrong."""
    logits = LOGITS.clone().requires_grad_()
    log_prob = logits.log_softmax(0)
    total, chance = torch.zeros((), dtype=torch.float64), 0.0
    for actions in product(range(4), repeat=3):
        drawn = torch.tensor(actions)
        if RIGHT[drawn].max() == 0.0 or (strength and RIGHT[drawn].min() == 1.0):
            continue
        whole = scored(RIGHT[drawn], [3])
        kept = select(whole)
        advantage = Balanced(strength=strength)(None, whole.take(kept))
        nothing = torch.zeros_like(advantage)
        seen = TokenBatch(
            advantage=advantage, behaviour=nothing, old=nothing, reference=None, completion=torch.arange(len(kept))
        )
        loss, _ = WeightedLikelihood()(log_prob[drawn[kept]], seen)
        weight = float(log_prob[drawn].detach().sum().exp())
        total, chance = total + weight * loss.sum(), chance + weight
    (found,) = torch.autograd.grad(total / chance, logits)
    return found


def exact_gradient(of_chance):
    logits = LOGITS.clone().requires_grad_()
    return torch.autograd.grad(of_chance((logits.softmax(0) * RIGHT).sum()), logits)[0]


def test_cloning_the_best_of_n_climbs_the_log_of_the_chance_to_be_right():
    torch.testing.assert_close(-expected_gradient(BestOfN(), 0.0), exact_gradient(torch.log))


@pytest.mark.parametrize("worst", [1, 2])
def test_cloning_with_balanced_negatives_climbs_the_log_odds_however_many_negatives_are_kept(worst):
    torch.testing.assert_close(-expected_gradient(BestOfN(worst=worst), 1.0), exact_gradient(torch.logit))
