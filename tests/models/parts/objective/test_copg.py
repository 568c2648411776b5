"""The contrastive policy gradient: its gradient by several derivations, and its optimum under any sampler."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor

from models.method.token_batch import TokenBatch
from models.parts.objective.copg import Copg
from tests.support.tiny_batches import gradient_of, make_batch, numbers


def batch(rewards: Tensor, reference: Tensor, group: tuple[int, ...] = (0, 0)) -> TokenBatch:
    """Return a batch of completions of one token. The log-probs of their sampler are NaN, that is, unknown."""
    unknown = torch.full_like(rewards, torch.nan)
    return make_batch(
        advantage=unknown,
        behaviour=unknown,
        old=unknown,
        reference=reference,
        reward=rewards,
        group=torch.tensor(group),
    )


def test_a_pair_by_hand() -> None:
    seen = batch(numbers(1.0, 0.0), numbers(-2.0, -3.0))
    loss, watch = Copg(beta=0.5)(numbers(-1.0, -2.5), seen)
    torch.testing.assert_close(loss, numbers(0.28125))  # (1 - 0.5 * (1 - 0.5))^2 / 2
    assert watch["pair_contrast"].tolist() == [0.75] and watch["pair_difference"].tolist() == [1.0]
    torch.testing.assert_close(gradient_of(Copg(beta=0.5), numbers(-1.0, -2.5), seen), numbers(-0.375, 0.375))


def random_round() -> tuple[TokenBatch, Tensor]:
    generator = torch.Generator().manual_seed(5)
    rewards, reference, moved = (torch.randn(6, dtype=torch.float64, generator=generator) for _ in range(3))
    return batch(rewards, reference - 3, (0, 0, 0, 0, 1, 1)), reference - 3 + moved


def test_the_gradient_is_the_difference_of_the_regularised_rewards_times_that_of_the_log_probs() -> None:
    seen, log_prob = random_round()
    assert seen.reference is not None
    regularised = seen.reward - 0.3 * (log_prob - seen.reference)
    centred = regularised - numbers(*[float(regularised[:4].mean())] * 4, *[float(regularised[4:].mean())] * 2)
    expected = -centred / numbers(3, 3, 3, 3, 1, 1)  # the mean over pairs is centred / (G - 1)
    torch.testing.assert_close(gradient_of(Copg(beta=0.3), log_prob, seen), expected)


def test_the_gradient_agrees_with_finite_differences() -> None:
    seen, log_prob = random_round()
    assert torch.autograd.gradcheck(lambda x: Copg()(x, seen)[0], (log_prob.requires_grad_(),), eps=1e-6, atol=1e-7)


@pytest.mark.parametrize("beta", [0.01, 0.1, 2.0])
def test_for_a_preference_it_is_ipos_loss_times_a_quarter_of_beta(beta: float) -> None:
    reference, log_prob = numbers(-2.0, -3.0), numbers(-1.0, -2.5).requires_grad_()
    better, worse = (log_prob - reference).unbind()
    ipo = (better - worse - 1 / (2 * beta)) ** 2
    (expected,) = torch.autograd.grad(ipo, log_prob)
    gradient = gradient_of(Copg(beta=beta), log_prob.detach(), batch(numbers(0.25, -0.25), reference))
    torch.testing.assert_close(gradient, beta / 4 * expected)


WORTH, REFERENCE, BETA = numbers(1.0, 0.0, -2.0), numbers(0.2, 0.3, 0.5).log(), 0.4


def expected_update(log_prob: Tensor, sampler: Tensor, logits: Tensor, size: int = 2) -> Tensor:
    """Return the mean gradient over all groups of `size` completions of a bandit, drawn from `sampler`."""
    total = torch.zeros((), dtype=torch.float64)
    for actions in map(list, product(range(3), repeat=size)):
        seen = batch(WORTH[actions], REFERENCE[actions], (0,) * size)
        losses, _ = Copg(beta=BETA)(log_prob[actions], seen)
        total = total + sampler[actions].prod() * losses.sum()
    return torch.autograd.grad(total, logits, retain_graph=True)[0]


@pytest.mark.parametrize("size", [2, 3])
def test_on_policy_the_expected_update_is_the_exact_gradient_of_the_reward_less_the_kl(size: int) -> None:
    logits = numbers(0.3, -0.2, 0.9).requires_grad_()
    log_prob = logits.log_softmax(0)
    value = (log_prob.exp() * (WORTH - BETA * (log_prob - REFERENCE))).sum()
    (exact,) = torch.autograd.grad(value, logits, retain_graph=True)
    torch.testing.assert_close(-expected_update(log_prob, log_prob.exp().detach(), logits, size), exact)


def test_whoever_drew_the_completions_the_best_policy_is_the_one_that_stands_still() -> None:
    best = (REFERENCE + WORTH / BETA).log_softmax(0)
    logits = best.clone().requires_grad_()
    for sampler in (numbers(1, 1, 1) / 3, numbers(0.8, 0.1, 0.1), best.exp()):
        assert expected_update(logits.log_softmax(0), sampler, logits).abs().max() < 1e-12
    elsewhere = numbers(0.3, -0.2, 0.9).requires_grad_()
    assert expected_update(elsewhere.log_softmax(0), numbers(1, 1, 1) / 3, elsewhere).abs().max() > 0.1


@pytest.mark.rotating(of=6)
def test_without_any_sampling_of_its_own_descent_ends_at_the_best_policy() -> None:
    logits = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    for _ in range(300):
        step = expected_update(logits.log_softmax(0), numbers(0.8, 0.1, 0.1), logits)
        logits = (logits - 5.0 * step).detach().requires_grad_()
    torch.testing.assert_close(logits.softmax(0), (REFERENCE + WORTH / BETA).softmax(0), rtol=0, atol=1e-6)


def test_a_reward_added_to_all_completions_of_a_prompt_changes_nothing() -> None:
    seen, log_prob = random_round()
    shifted = replace(seen, reward=seen.reward + numbers(5, 5, 5, 5, -9, -9))
    torch.testing.assert_close(Copg()(log_prob, shifted)[0], Copg()(log_prob, seen)[0])


def test_what_is_watched_is_one_value_a_group_without_gradient() -> None:
    seen, log_prob = random_round()
    loss, watch = Copg()(log_prob.requires_grad_(), seen)
    assert loss.shape == (2,) and all(value.shape == (2,) and not value.requires_grad for value in watch.values())
