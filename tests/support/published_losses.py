"""The loss of a whole round in float64: computed by the parts, and on padded matrices as in published trainers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from models.learner.reduce import Normalisation, token_weights
from models.method.advantage import Advantage
from models.method.objective import Objective
from models.method.resources import RunResources
from models.method.scored import Scored
from tests.support.tiny_batches import make_batch
from tests.support.tiny_models import scored

LENGTHS = [3, 1, 4, 2, 2, 6, 1, 3, 5, 2, 4, 1]
SIZES = [4, 4, 4]
LONGEST = 8
Both = tuple[Tensor, Tensor]
"""A loss, and its gradient with respect to every log-prob."""


def random_round(rewards: Tensor | None = None, seed: int = 0) -> tuple[Scored, Tensor, Tensor]:
    """Return twelve completions of three prompts, and the log-probs of their tokens under policy and old policy."""
    chance = torch.Generator().manual_seed(seed)
    rewards = torch.randn(len(LENGTHS), dtype=torch.float64, generator=chance) if rewards is None else rewards
    held = scored(rewards, SIZES)
    rollouts = [replace(rollout, completion=(1,) * n) for rollout, n in zip(held.rollouts, LENGTHS, strict=True)]
    log_prob = -3 * torch.rand(sum(LENGTHS), dtype=torch.float64, generator=chance)
    old = log_prob + 0.4 * torch.randn(sum(LENGTHS), dtype=torch.float64, generator=chance)
    return replace(held, rollouts=rollouts), log_prob.requires_grad_(), old


def loss_of_parts(
    advantage: Advantage,
    objective: Objective,
    held: Scored,
    log_prob: Tensor,
    old: Tensor,
    normalisation: Normalisation,
    resources: RunResources | None = None,
) -> Both:
    """Return the loss that a fit takes a step on, and its gradient with respect to every log-prob."""
    signal = torch.cat(list(advantage(cast(RunResources, resources), held).tokens))
    rows = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))
    losses, _ = objective(log_prob, make_batch(signal, None, old, None, rows))
    loss = (torch.cat(token_weights(LENGTHS, normalisation, LONGEST)) * losses).sum()
    return loss, torch.autograd.grad(loss, log_prob)[0]


def padded(values: Tensor) -> Tensor:
    """Return token values as a matrix, [completions, longest], with zeros after the last token."""
    return pad_sequence(list(values.split(LENGTHS)), batch_first=True)


def mask() -> Tensor:
    """Return the mask of a padded matrix: 1 where it holds a token, otherwise 0, [completions, longest], float64."""
    return padded(torch.ones(sum(LENGTHS), dtype=torch.float64))


def clipped_loss(advantage: Tensor, log_prob: Tensor, old: Tensor, low: float = 0.2, high: float = 0.2) -> Both:
    """Return the mean of PPO's loss over all tokens, and its gradient with respect to every log-prob.

    Args:
        advantage: [completions, longest], or [completions, 1] if all tokens of a completion have the same.
        log_prob: log-prob of each token under the policy, [tokens].
        old: log-prob of each token under the policy that sampled it, [tokens].
        low: the ratio is clipped at 1 - low.
        high: the ratio is clipped at 1 + high.
    """
    ratio = torch.exp(padded(log_prob) - padded(old))
    plain = -advantage * ratio
    other = -advantage * torch.clamp(ratio, 1 - low, 1 + high)
    loss = (torch.maximum(plain, other) * mask()).sum() / mask().sum()
    return loss, torch.autograd.grad(loss, log_prob)[0]


def assert_same(actual: Sequence[Tensor], wanted: Sequence[Tensor], gap: float = 1e-12) -> None:
    """Assert that loss and gradient agree to `gap`, and that neither is near zero."""
    for first, other in zip(actual, wanted, strict=True):
        assert float(other.detach().abs().max()) > 1e-3
        assert float((first - other).detach().abs().max()) <= gap
