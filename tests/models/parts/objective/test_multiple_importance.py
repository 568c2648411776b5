"""Multiple importance sampling: exact expectations, bounded ratios, and the published loss on demonstrations."""

import pytest
import torch
from torch import Tensor

from models.method.problem import Origin
from models.method.token_batch import TokenBatch
from models.parts.objective.grpo import Grpo
from models.parts.objective.multiple_importance import MultipleImportance, multiple_importance
from tests.support.tiny_batches import make_batch

LOG_PROB = torch.tensor([-1.0, -0.2, -2.0, -0.7, -3.0], dtype=torch.float64)
ADVANTAGE = torch.tensor([-1.0, -1.0, -1.0, 2.0, 2.0], dtype=torch.float64)
SAMPLED = torch.tensor([True, True, True, False, False])


def batch(old: Tensor = LOG_PROB, origins: tuple[Origin, ...] = ("policy", "demonstration")) -> TokenBatch:
    """Return a batch of a sample of three tokens and a demonstration of two."""
    return make_batch(
        advantage=ADVANTAGE,
        behaviour=old,
        old=old,
        reference=LOG_PROB - 0.5,
        completion=torch.tensor([0, 0, 0, 1, 1]),
        origins=origins,
    )


def gradient_of(objective: MultipleImportance, seen: TokenBatch) -> Tensor:
    log_prob = LOG_PROB.clone().requires_grad_()
    loss, _ = objective(log_prob, seen)
    return torch.autograd.grad(loss.sum(), log_prob)[0]


def test_the_ratio_is_one_where_author_and_old_policy_are_the_policy() -> None:
    torch.testing.assert_close(multiple_importance(LOG_PROB, LOG_PROB, LOG_PROB), torch.ones(5, dtype=torch.float64))


def test_samples_of_author_and_old_policy_together_give_the_policys_expectation_exactly() -> None:
    policy = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    old, author = policy.flip(0), torch.tensor([0.05, 0.9, 0.05], dtype=torch.float64)
    worth = torch.tensor([1.0, -2.0, 5.0], dtype=torch.float64)
    ratio = multiple_importance(policy.log(), old.log(), author.log())
    torch.testing.assert_close((0.5 * (old + author) * ratio * worth).sum(), (policy * worth).sum())


def test_no_ratio_exceeds_twice_that_to_the_old_policy_however_unlikely_the_author_held_the_token() -> None:
    ratio = multiple_importance(LOG_PROB, LOG_PROB - 0.3, torch.full((5,), -400.0, dtype=torch.float64))
    torch.testing.assert_close(ratio, torch.full((5,), 2.0 * torch.e**0.3, dtype=torch.float64))


def test_where_the_policy_wrote_everything_it_is_the_clipped_policy_gradient() -> None:
    seen = batch(old=LOG_PROB - 0.4, origins=("policy", "policy"))
    torch.testing.assert_close(MultipleImportance(kl=0.1)(LOG_PROB, seen)[0], Grpo(kl=0.1)(LOG_PROB, seen)[0])


def test_demonstrations_without_doubt_or_curiosity_are_reinforced_like_samples() -> None:
    gradient = gradient_of(MultipleImportance(doubt=0.0, curiosity=0.0, kl=0.0), batch())
    torch.testing.assert_close(gradient, -ADVANTAGE)


def test_what_the_policy_holds_for_likely_counts_less_by_one_minus_its_probability_to_the_power() -> None:
    gradient = gradient_of(MultipleImportance(doubt=0.0, curiosity=2.0, kl=0.0), batch())
    torch.testing.assert_close(gradient, -ADVANTAGE * torch.where(SAMPLED, 1.0, (1.0 - LOG_PROB.exp()) ** 2))


def test_every_answer_of_the_data_is_weighed_as_one_the_worse_of_a_preference_too() -> None:
    """The policy did not sample a rejected answer, so it is weighted as a demonstration and not clipped."""
    demonstrated = MultipleImportance(kl=0.0)(LOG_PROB, batch(old=LOG_PROB - 0.4))[0]
    for origin in ("chosen", "rejected"):
        seen = batch(old=LOG_PROB - 0.4, origins=("policy", origin))
        torch.testing.assert_close(MultipleImportance(kl=0.0)(LOG_PROB, seen)[0], demonstrated)


def test_a_ratio_by_hand() -> None:
    seen = batch(old=torch.full((5,), 0.4, dtype=torch.float64).log())
    _, watch = MultipleImportance(doubt=0.5, anybody=0.2, curiosity=1.0)(
        torch.full((5,), 0.7, dtype=torch.float64).log(), seen
    )
    # the probability assumed for the author is 0.5 * 0.4 + 0.5 * 0.2 = 0.3, so the ratio is 2 * 0.7 / (0.3 + 0.4)
    assert watch["data_ratio"].tolist() == pytest.approx([1.0, 1.0, 1.0, 2.0, 2.0])
    assert watch["exploration"].tolist() == pytest.approx([1.0, 1.0, 1.0, 0.3, 0.3])


def test_by_default_it_is_the_published_loss_with_omega_half_of_pi_old_plus_one_and_the_root_of_one_less_pi() -> None:
    """As in the published code: no clip on the samples, and 2 p / (p_old + omega) sqrt(1 - p) A on the data."""
    old = LOG_PROB + torch.tensor([0.9, -0.7, 0.0, 0.4, -0.2], dtype=torch.float64)
    leaf = LOG_PROB.clone().requires_grad_()
    objective = MultipleImportance(kl=0.0, clip_low=None, clip_high=None)
    gradient = torch.autograd.grad(objective(leaf, batch(old=old))[0].sum(), leaf)[0]
    p, before = LOG_PROB.exp(), old.exp()
    omega = 0.5 * (before + 1.0)
    on_data = 2.0 * p / (before + omega) * (1.0 - p).sqrt() * ADVANTAGE  # d p / d log p = p; (1 - p) is constant
    torch.testing.assert_close(gradient, -torch.where(SAMPLED, p / before * ADVANTAGE, on_data))


def test_without_a_clip_every_ratio_counts() -> None:
    old = LOG_PROB - torch.tensor([2.0, -2.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    seen = batch(old=old, origins=("policy", "policy"))
    loss, watch = Grpo(kl=0.0, clip_low=None, clip_high=None)(LOG_PROB, seen)
    torch.testing.assert_close(loss, -(LOG_PROB - old).exp() * ADVANTAGE)
    assert not watch["clipped_share"].any()
