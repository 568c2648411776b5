"""B-Coder: regression to Bellman targets, with logits as values."""

from dataclasses import replace

import torch

from models.parts.advantage.gae import Gae, generalised_advantages
from models.parts.objective.advantage_regression import AdvantageRegression
from models.recipes.load import load_recipe
from tests.support.tiny_batches import make_batch, numbers

VALUES = numbers(0.2, 0.5, 0.1)
"""The critic's value before each of three tokens."""
REWARDS = numbers(0, 0, 1)
"""The tests' verdict, given at the last token."""


def parts() -> tuple[Gae, AdvantageRegression]:
    recipe = load_recipe("b_coder")
    assert isinstance(recipe.advantage, Gae) and isinstance(recipe.objective, AdvantageRegression)
    return recipe.advantage, recipe.objective


def test_the_loss_is_half_the_squared_bellman_error_of_every_token() -> None:
    """With lambda 0, the target covers one step."""
    advantage, objective = parts()
    advantage = replace(advantage, gae_lambda=0.0)
    assert not advantage.whiten and advantage.kl_in_reward == 0
    [bellman] = generalised_advantages([REWARDS], [VALUES], advantage.gamma, advantage.gae_lambda)
    torch.testing.assert_close(bellman, numbers(0.3, -0.4, 0.9))
    reference, ratios = numbers(-1, -2, -3), numbers(1, -2, 3)
    batch = make_batch(bellman, reference, reference, reference, torch.zeros(3, dtype=torch.long))
    loss, _ = objective(reference + ratios, batch)
    q = VALUES + objective.beta * ratios
    target = REWARDS + torch.cat([VALUES[1:], numbers(0)])
    torch.testing.assert_close(loss, (q - target).square() / 2)
    torch.testing.assert_close(loss, numbers(0.02, 0.02, 0.18))  # beta 0.1: 0.1 - 0.3, -0.2 + 0.4, 0.3 - 0.9


def test_without_error_a_program_is_likelier_by_what_it_is_worth_more_than_expected() -> None:
    """The one-step Bellman targets telescope, so beta log pi/ref of the whole program is R minus V of its prompt."""
    advantage, objective = parts()
    advantage = replace(advantage, gae_lambda=0.0)
    [bellman] = generalised_advantages([REWARDS], [VALUES], advantage.gamma, advantage.gae_lambda)
    reference = numbers(-1, -2, -3)
    log_prob = (reference + bellman / objective.beta).requires_grad_()
    batch = make_batch(bellman, reference, reference, reference, torch.zeros(3, dtype=torch.long))
    loss, _ = objective(log_prob, batch)
    (gradient,) = torch.autograd.grad(loss.sum(), log_prob)
    torch.testing.assert_close(gradient, numbers(0, 0, 0))
    gained = objective.beta * (log_prob.detach() - reference).sum()
    torch.testing.assert_close(gained, REWARDS.sum() - VALUES[0])


def test_the_recipes_target_is_bellmans_over_one_step_two_and_three_mixed_by_lambda() -> None:
    advantage, _ = parts()
    mix = advantage.gae_lambda
    assert 0 < mix < 1 and advantage.gamma == 1
    [errors] = generalised_advantages([REWARDS], [VALUES], advantage.gamma, mix)
    targets = numbers((1 - mix) * (0.5 + mix * 0.1) + mix**2, (1 - mix) * 0.1 + mix, 1)
    torch.testing.assert_close(VALUES + errors, targets)


def test_programs_of_the_data_stand_beside_the_policys_own() -> None:
    rollouts = load_recipe("b_coder").rollouts
    assert (rollouts.name, rollouts.reads) == ("sample_beside_data", "demonstrations")
