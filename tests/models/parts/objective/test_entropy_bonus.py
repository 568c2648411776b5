"""The entropy bonus of the clipped policy gradient: its gradient, its sum over rows, and its optimum."""

from dataclasses import replace

import torch
from torch import Tensor

from models.learner.reduce import entropy_term
from models.method.token_batch import TokenBatch
from models.parts.objective.grpo import Grpo
from tests.support.tiny_batches import make_batch, numbers


def policy() -> tuple[Tensor, Tensor, TokenBatch]:
    """Return logits, log-probs and a batch of two tokens, drawn from two distributions over three words."""
    logits = torch.tensor([[0.3, -0.2, 0.9], [2.0, 0.0, -1.0]], dtype=torch.float64, requires_grad=True)
    whole = logits.log_softmax(-1)
    entropy = -(whole.exp() * whole).sum(-1)
    log_prob = whole[[0, 1], [2, 1]]
    batch = make_batch(
        advantage=numbers(0.7, -1.2),
        behaviour=log_prob.detach(),
        old=log_prob.detach(),
        reference=None,
        entropy=entropy,
    )
    return logits, log_prob, batch


def gradient(bonus: float, advantage: float = 1.0) -> Tensor:
    logits, log_prob, batch = policy()
    loss, _ = Grpo(kl=0.0)(log_prob, replace(batch, advantage=advantage * batch.advantage))
    return torch.autograd.grad(loss.mean() + entropy_term(batch.entropy, bonus, 2), logits)[0]


def test_the_rows_terms_sum_to_the_bonus_times_the_mean_entropy_however_they_are_cut() -> None:
    _, _, batch = policy()
    parts = entropy_term(batch.entropy[:1], 0.3, 2) + entropy_term(batch.entropy[1:], 0.3, 2)
    torch.testing.assert_close(parts, -0.3 * batch.entropy.mean())


def test_without_advantage_the_gradient_is_the_bonus_times_p_times_the_surprise_above_the_entropy() -> None:
    logits, _, batch = policy()
    whole = logits.detach().log_softmax(-1)
    surprise = -whole - batch.entropy.detach()[:, None]
    torch.testing.assert_close(gradient(0.3, advantage=0.0), -0.15 * whole.exp() * surprise)


def test_the_gradient_is_that_of_the_policy_gradient_plus_that_of_the_bonus() -> None:
    torch.testing.assert_close(gradient(0.3), gradient(0.0) + gradient(0.3, advantage=0.0))
    assert (gradient(0.3) - gradient(0.0)).abs().max() > 0.01


def test_descent_on_the_bonus_alone_makes_every_word_as_likely_as_the_others() -> None:
    logits = torch.tensor([[3.0, -2.0, 0.5]], dtype=torch.float64)
    for _ in range(400):
        logits.requires_grad_()
        whole = logits.log_softmax(-1)
        entropy = -(whole.exp() * whole).sum(-1)
        (step,) = torch.autograd.grad(entropy_term(entropy, 1.0, 1), logits)
        logits = (logits - step).detach()
    torch.testing.assert_close(logits.softmax(-1), torch.full((1, 3), 1 / 3, dtype=torch.float64), rtol=0, atol=1e-6)
