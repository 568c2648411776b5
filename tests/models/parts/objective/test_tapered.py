"""The tapered objective: REINFORCE on policy, bounded weights of bad completions, and imitation of good ones."""

import torch
from torch import Tensor

from models.method.token_batch import TokenBatch
from models.parts.objective.tapered import Tapered
from tests.support.tiny_batches import make_batch, numbers


def batch(advantage: Tensor, behaviour: Tensor) -> TokenBatch:
    """Return completions of one token each."""
    return make_batch(advantage, behaviour, behaviour)


def gradient_of(objective: Tapered, log_prob: Tensor, behaviour: Tensor, advantage: Tensor) -> Tensor:
    log_prob = log_prob.clone().requires_grad_()
    loss, _ = objective(log_prob, batch(advantage, behaviour))
    return torch.autograd.grad(loss.sum(), log_prob)[0]


def test_on_policy_it_is_reinforce() -> None:
    behaviour, advantage = numbers(-1.0, -2.0, -3.0), numbers(1.5, -0.5, -2.0)
    torch.testing.assert_close(gradient_of(Tapered(), behaviour, behaviour, advantage), -advantage)


def test_on_policy_the_expected_update_is_the_exact_policy_gradient_whatever_the_baseline() -> None:
    logits, worth = numbers(0.3, -0.2, 0.9, 0.0).requires_grad_(), numbers(1.0, 0.0, -2.0, 0.5)
    log_prob = logits.log_softmax(0)
    (exact,) = torch.autograd.grad((log_prob.exp() * worth).sum(), logits, retain_graph=True)
    for baseline in (-5.0, 0.2, 5.0):
        losses, _ = Tapered()(log_prob, batch(worth - baseline, log_prob.detach()))
        (expected,) = torch.autograd.grad((log_prob.exp().detach() * losses).sum(), logits, retain_graph=True)
        torch.testing.assert_close(-expected, exact)


def test_a_bad_completion_fades_as_the_policy_leaves_it() -> None:
    log_prob = numbers(-1.0, -4.0, -9.0)
    gradient = gradient_of(Tapered(), log_prob, torch.zeros(3).double(), -torch.ones(3).double())
    torch.testing.assert_close(gradient, log_prob.exp())


def test_a_bad_completion_weighs_at_most_the_ceiling() -> None:
    log_prob, behaviour, advantage = numbers(-1.0, -8.0), numbers(-9.0, -9.0), numbers(-1.0, -1.0)
    torch.testing.assert_close(gradient_of(Tapered(), log_prob, behaviour, advantage), numbers(1.0, 1.0))
    torch.testing.assert_close(gradient_of(Tapered(ceiling=2.5), log_prob, behaviour, advantage), numbers(2.5, 2.5))


def test_a_good_completion_is_imitated_however_old() -> None:
    gradient = gradient_of(Tapered(), numbers(-0.1, -50.0), numbers(0.0, 0.0), numbers(1.0, 1.0))
    torch.testing.assert_close(gradient, numbers(-1.0, -1.0))


def test_however_far_the_policy_is_from_the_sampler_no_gradient_exceeds_the_advantage() -> None:
    generator = torch.Generator().manual_seed(0)
    log_prob, behaviour = -200 * torch.rand(2, 500, dtype=torch.float64, generator=generator)
    advantage = torch.randn(500, dtype=torch.float64, generator=generator)
    gradient = gradient_of(Tapered(), log_prob, behaviour, advantage)
    assert torch.isfinite(gradient).all() and (gradient.abs() <= advantage.abs()).all()
    unbounded = torch.exp(log_prob - behaviour) * advantage.abs()  # what plain importance weights would give
    assert unbounded.max() > 1e30


def test_bad_completions_alone_cannot_drive_the_policy_away_for_ever() -> None:
    """The sampler draws two actions evenly, but only the bad one is trained on. Its gradient falls with its chance."""
    logits = torch.zeros(2, dtype=torch.float64)
    for _ in range(200):
        logits.requires_grad_()
        log_prob = logits.log_softmax(0)[:1]
        losses, _ = Tapered()(log_prob, batch(numbers(-1.0), numbers(0.5).log()))
        (step,) = torch.autograd.grad(losses.sum(), logits)
        chance = log_prob.detach().exp()
        # weight min(2 p, 1) times the gradient of log p at the action's own logit, 1 - p
        torch.testing.assert_close(step[:1], (2 * chance).clamp(max=1) * (1 - chance))
        logits = (logits - step).detach()
    assert float(step.abs().max()) < 0.02 and float(logits.softmax(0)[0]) > 1e-3


def test_a_completion_of_several_tokens_is_weighed_as_a_whole() -> None:
    completion = torch.tensor([0, 0, 1, 1, 1])
    behaviour = numbers(-1.0, -1.0, -0.5, -0.5, -0.5)
    seen = make_batch(numbers(1.0, 1.0, -2.0, -2.0, -2.0), behaviour, behaviour, None, completion)
    log_prob = numbers(-3.0, -2.0).requires_grad_()
    loss, watch = Tapered()(log_prob, seen)
    (gradient,) = torch.autograd.grad(loss.sum(), log_prob)
    torch.testing.assert_close(gradient, numbers(-1.0, 2.0 * float(numbers(-0.5).exp())))
    assert watch["bad_share"].tolist() == [0.0, 1.0] and watch["tapered_share"].tolist() == [0.0, 1.0]
    assert all(value.shape == (2,) and not value.requires_grad for value in watch.values())
