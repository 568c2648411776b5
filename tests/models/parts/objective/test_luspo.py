"""The length-unbiased sequence loss: TRL's loss and gradient, equal gradients for all lengths, and the recipe."""

import torch

from models.parts.advantage.group_relative import GroupRelative
from models.parts.objective.gspo import GspoToken
from models.recipes.load import load_recipe
from tests.support.published_losses import (
    LENGTHS,
    LONGEST,
    SIZES,
    assert_same,
    loss_of_parts,
    mask,
    padded,
    random_round,
)

LOW, HIGH = 0.03, 0.04


def test_loss_and_gradient_are_trls_by_the_constant() -> None:
    """TRL 1.16's GRPOTrainer with `importance_sampling_level="sequence"` and `loss_type="luspo"` gives the formula."""
    held, log_prob, old = random_round()
    rewards = held.rewards.view(-1, SIZES[0])
    centred = rewards - rewards.mean(1, keepdim=True)
    advantage = (centred / (rewards.std(1, keepdim=True) + 1e-4)).flatten()
    gaps = (padded(log_prob) - padded(old)) * mask()
    ratio = torch.exp(gaps.sum(1) / mask().sum(1))
    each = -torch.minimum(ratio * advantage, ratio.clamp(1 - LOW, 1 + HIGH) * advantage)
    loss = (each * mask().sum(1)).mean()
    wanted = loss, torch.autograd.grad(loss, log_prob, retain_graph=True)[0]
    objective = GspoToken(clip_low=LOW, clip_high=HIGH)
    mine = loss_of_parts(GroupRelative(deviation="n-1"), objective, held, log_prob, old, "constant")
    assert_same([LONGEST * value for value in mine], wanted)


def test_two_right_answers_of_different_length_gain_as_much_a_token() -> None:
    """Gradients at the policy that sampled. With GSPO's mean over the completion, the shorter answer gains more."""
    held, log_prob, _ = random_round(torch.tensor([1.0, 1, 0, 0, *[0] * 8], dtype=torch.float64))
    old, part = log_prob.detach(), GspoToken(clip_low=LOW, clip_high=HIGH)
    right = slice(0, LENGTHS[0] + LENGTHS[1])
    by_normalisation = {
        name: loss_of_parts(GroupRelative(), part, held, log_prob, old, name)[1][right]
        for name in ("constant", "completion")
    }
    even, uneven = by_normalisation["constant"], by_normalisation["completion"]
    assert float(even.std()) < 1e-15 and float(uneven[LENGTHS[0]] / uneven[0]) > 2.9  # 3 tokens and 1 token


def test_the_recipe_is_made_of_these_parts() -> None:
    recipe = load_recipe("luspo")
    assert recipe.schedule is not None
    assert (recipe.objective.name, recipe.schedule.normalisation) == ("gspo_token", "constant")
    assert recipe.objective.level == "token"  # level "completion" would change the normalisation
