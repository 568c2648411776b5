"""Trajectory balance on a tree of two tokens: zero loss at the target only, and the gradient of the reverse KL."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor

from models.method.token_batch import TokenBatch
from models.parts.objective.divergence import DivergenceToPosterior
from models.parts.objective.trajectory_balance import TrajectoryBalance
from tests.support.tiny_batches import make_batch

BETA = 0.5
REWARDS = torch.tensor([1.0, 0.0, 0.5, 0.8], dtype=torch.float64)
PRIOR = torch.tensor([[-0.5, -0.9], [-0.5, -0.6], [-1.0, -0.3], [-1.0, -1.3]], dtype=torch.float64)
"""Log-probs of both tokens of the four leaves under the prior, [leaves, 2]."""
START = torch.tensor([0.4, -0.2, 0.9], dtype=torch.float64)


def tree(logits: Tensor) -> Tensor:
    """Return log-probs of both tokens of the leaves 00, 01, 10, 11; logits are of the root and the branches, [4, 2]."""
    first = torch.stack([torch.nn.functional.logsigmoid(logits[0]), torch.nn.functional.logsigmoid(-logits[0])])
    second = torch.stack([torch.nn.functional.logsigmoid(logits[1:]), torch.nn.functional.logsigmoid(-logits[1:])], 1)
    return torch.stack([first.repeat_interleave(2), second.flatten()], 1)


def target(prior: float) -> Tensor:
    return (prior * PRIOR.sum(1) + REWARDS / BETA).softmax(0)


def group_of(leaves: Tensor, behaviour: Tensor = PRIOR) -> TokenBatch:
    """Return a batch of one prompt with completions of two tokens."""
    count = len(leaves)
    return make_batch(
        advantage=torch.zeros(2 * count, dtype=torch.float64),
        behaviour=behaviour[leaves].flatten(),
        old=behaviour[leaves].flatten(),
        reference=PRIOR[leaves].flatten(),
        completion=torch.arange(count).repeat_interleave(2),
        reward=REWARDS[leaves],
        group=torch.zeros(count, dtype=torch.long),
    )


def loss_of(logits: Tensor, leaves: tuple[int, ...], prior: float) -> tuple[Tensor, dict[str, Tensor]]:
    drawn = torch.tensor(leaves)
    return TrajectoryBalance(beta=BETA, prior=prior)(tree(logits).sum(1)[drawn], group_of(drawn))


def balanced(prior: float) -> Tensor:
    """Return the logits of the tree that samples the target."""
    leaf = target(prior)
    branch = torch.stack([leaf[:2].sum(), leaf[0] / leaf[:2].sum(), leaf[2] / leaf[2:].sum()])
    return torch.logit(branch)


@pytest.mark.parametrize("prior", [0.0, 1.0])
def test_loss_and_gradient_are_zero_for_every_group_where_the_policy_samples_in_proportion_to_the_reward(
    prior: float,
) -> None:
    for leaves in product(range(4), repeat=3):
        logits = balanced(prior).requires_grad_()
        loss, watch = loss_of(logits, leaves, prior)
        (gradient,) = torch.autograd.grad(loss.sum(), logits)
        torch.testing.assert_close(loss, torch.zeros(1, dtype=torch.float64))
        torch.testing.assert_close(gradient, torch.zeros(3, dtype=torch.float64))
        unnormalised = prior * PRIOR.sum(1) + REWARDS / BETA
        torch.testing.assert_close(watch["log_normaliser"], unnormalised.logsumexp(0)[None])


@pytest.mark.parametrize("prior", [0.0, 1.0])
def test_elsewhere_some_group_has_a_loss(prior: float) -> None:
    for shift in torch.eye(3, dtype=torch.float64) * 0.1:
        assert float(loss_of(balanced(prior) + shift, (0, 1, 2, 3), prior)[0]) > 1e-4


@pytest.mark.parametrize("sampler", [[0.25, 0.25, 0.25, 0.25], [0.7, 0.1, 0.1, 0.1]])
def test_descent_reaches_the_target_from_completions_of_any_other_policy(sampler: list[float]) -> None:
    chance = torch.tensor(sampler, dtype=torch.float64)
    pairs = torch.tensor(list(product(range(4), repeat=2)))
    seen = group_of(pairs.flatten())
    seen = replace(seen, group=torch.arange(16).repeat_interleave(2))
    weight = chance[pairs].prod(1)
    logits = START.clone().requires_grad_()
    objective = TrajectoryBalance(beta=BETA, prior=1.0)
    for _ in range(400):
        loss, _ = objective(tree(logits).sum(1)[pairs.flatten()], seen)
        (gradient,) = torch.autograd.grad((weight * loss).sum(), logits)
        logits = (logits - 1.5 * gradient).detach().requires_grad_()
    torch.testing.assert_close(tree(logits).sum(1).exp(), target(1.0), atol=1e-6, rtol=0.0)


@pytest.mark.parametrize("size", [2, 3])
def test_on_fresh_groups_half_the_expected_gradient_is_that_of_reverse_kl_but_for_the_share_of_ones_own_mean(
    size: int,
) -> None:
    logits = START.clone().requires_grad_()
    policy = tree(logits).sum(1).exp()
    (wanted,) = torch.autograd.grad((policy * (policy / target(1.0)).log()).sum(), logits)
    total = torch.zeros((), dtype=torch.float64)
    for leaves in product(range(4), repeat=size):
        total = total + policy.detach()[list(leaves)].prod() * loss_of(logits, leaves, 1.0)[0].sum()
    (gradient,) = torch.autograd.grad(total, logits)
    torch.testing.assert_close(gradient / 2, wanted * (size - 1) / size)


def test_on_a_fresh_group_it_points_where_reverse_kl_to_the_posterior_does() -> None:
    leaves = torch.tensor([0, 3, 3, 1])
    logits = START.clone().requires_grad_()
    seen = group_of(leaves, tree(START))
    (balance,) = torch.autograd.grad(loss_of(logits, tuple(leaves.tolist()), 1.0)[0].sum(), logits)
    divergence, _ = DivergenceToPosterior(beta=BETA)(tree(logits).sum(1)[leaves], seen)
    (matched,) = torch.autograd.grad(divergence.sum(), logits)
    torch.testing.assert_close(balance / 2, matched * 3 / 4)
