"""Shaped probabilities of refinements in a policy gradient: the published loss, and the effect of gamma."""

import pytest
import torch
from torch import Tensor

from models.method.problem import Origin
from models.method.token_batch import TokenBatch
from models.parts.objective.grpo import Grpo
from models.parts.objective.shaped_likelihood import ShapedLikelihood
from tests.support.tiny_batches import make_batch

LOG_PROB = torch.tensor([-1.0, -0.2, -2.0, -0.7, -3.0], dtype=torch.float64)
OLD = LOG_PROB + torch.tensor([0.9, -0.7, 0.0, 0.4, -0.2], dtype=torch.float64)
ADVANTAGE = torch.tensor([-1.0, -1.0, -1.0, 2.0, 2.0], dtype=torch.float64)
SAMPLED = torch.tensor([True, True, True, False, False])


def batch(second: Origin = "refined", old: Tensor = OLD) -> TokenBatch:
    """Return a batch of a sample of three tokens and a refinement of two."""
    return make_batch(
        advantage=ADVANTAGE,
        behaviour=old,
        old=old,
        reference=LOG_PROB - 0.5,
        completion=torch.tensor([0, 0, 0, 1, 1]),
        origins=("policy", second),
    )


def gradient_of(objective: Grpo, seen: TokenBatch) -> Tensor:
    leaf = LOG_PROB.clone().requires_grad_()
    return torch.autograd.grad(objective(leaf, seen)[0].sum(), leaf)[0]


def test_it_is_the_published_loss() -> None:
    """As in the published code: rho A without a clip on samples, and p / (p + 0.1) A on refinements."""
    objective = ShapedLikelihood(kl=0.0, clip_low=None, clip_high=None)
    loss, _ = objective(LOG_PROB, batch())
    p = LOG_PROB.exp()
    torch.testing.assert_close(loss, -torch.where(SAMPLED, p / OLD.exp(), p / (p + 0.1)) * ADVANTAGE)
    pull = torch.where(SAMPLED, p / OLD.exp(), 0.1 * p / (p + 0.1) ** 2)
    torch.testing.assert_close(gradient_of(objective, batch()), -pull * ADVANTAGE)


def test_a_token_of_probability_gamma_is_pulled_most_and_by_a_fourth() -> None:
    objective = ShapedLikelihood(kl=0.0, gamma=float(LOG_PROB[3].exp()))
    assert float(gradient_of(objective, batch())[3]) == pytest.approx(-0.25 * 2.0)
    for gamma in (0.02, 0.2, 0.9):
        assert abs(float(gradient_of(ShapedLikelihood(kl=0.0, gamma=gamma), batch())[3])) < 0.5


def test_no_old_policy_no_engine_and_no_clip_count_on_what_nobody_sampled() -> None:
    objective = ShapedLikelihood(kl=0.0)
    here, there = (objective(LOG_PROB, batch(old=old))[0] for old in (OLD, OLD - 5.0))
    torch.testing.assert_close(here[~SAMPLED], there[~SAMPLED], rtol=0, atol=0)
    assert not torch.equal(here[SAMPLED], there[SAMPLED])


def test_where_the_policy_sampled_everything_it_is_the_clipped_policy_gradient() -> None:
    for settings in ({"kl": 0.0}, {"kl": 0.3, "clip_low": None}):
        mine, grpo = (made(**settings)(LOG_PROB, batch("policy"))[0] for made in (ShapedLikelihood, Grpo))
        torch.testing.assert_close(mine, grpo, rtol=0, atol=0)


def test_a_very_small_gamma_teaches_nothing_and_a_very_large_one_is_the_bare_probability() -> None:
    assert float(gradient_of(ShapedLikelihood(kl=0.0, gamma=1e-9), batch())[~SAMPLED].abs().max()) < 1e-6
    large = gradient_of(ShapedLikelihood(kl=0.0, gamma=1e9), batch())[~SAMPLED] * 1e9
    torch.testing.assert_close(large, -(LOG_PROB.exp() * ADVANTAGE)[~SAMPLED])


@pytest.mark.parametrize("origin", ["explained", "relabelled", "demonstration", "chosen", "rejected", "teacher"])
def test_whatever_was_not_sampled_behind_the_prompt_is_shaped(origin: Origin) -> None:
    loss, watch = ShapedLikelihood(kl=0.0)(LOG_PROB, batch(origin))
    torch.testing.assert_close(loss, ShapedLikelihood(kl=0.0)(LOG_PROB, batch())[0])
    assert watch["off_policy_share"].tolist() == [0.0, 0.0, 0.0, 1.0, 1.0]
