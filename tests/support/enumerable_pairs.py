"""A softmax policy over four answers of one token each, so that all pairs of answers can be enumerated.

A pair consists of two different answers. The better one is drawn by the Bradley-Terry model with known rewards. Means
over all pairs are therefore exact, and so is the policy that maximises reward minus KL: ref exp(reward / beta),
normalised.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import torch
from torch import Tensor

from models.method.objective import Objective
from models.method.token_batch import TokenBatch
from tests.support.tiny_batches import make_batch

REWARDS = torch.tensor([1.0, 0.2, -0.5, 0.7], dtype=torch.float64)
REFERENCE = torch.tensor([0.1, 0.4, 0.2, 0.3], dtype=torch.float64).log()
PAIRS = torch.tensor(list(permutations(range(4), 2)))
"""All ordered pairs of two different answers, the better one first, [12, 2]."""
DRAWN = REFERENCE.exp()[PAIRS].prod(-1) * torch.sigmoid(REWARDS[PAIRS[:, 0]] - REWARDS[PAIRS[:, 1]])
CHANCE = DRAWN / DRAWN.sum()
"""Probability of each pair, [12]: the reference draws both answers, and Bradley-Terry draws the better one."""


def batch_of_pairs(pairs: Tensor, reference: Tensor = REFERENCE, **more: Any) -> TokenBatch:
    """Return pairs of answers as a batch for an objective: one token per completion, two completions per pair.

    `reference` has one value per answer, [answers]. `more` are fields of the batch, per token or per completion.
    """
    answers = pairs.flatten()
    nothing = torch.zeros(len(answers), dtype=torch.float64)
    batch = make_batch(
        advantage=nothing,
        behaviour=nothing,
        old=nothing,
        reference=reference[answers],
        pairs=torch.arange(len(answers)).reshape(-1, 2),
        group=torch.arange(len(answers)) // 2,
        reward=torch.tensor([1.0, 0.0], dtype=torch.float64).repeat(len(pairs)),
        origins=["policy"] * len(answers),
    )
    return replace(batch, **more)


def batch_of_lists(reward: Sequence[float], reference: Sequence[float], group: Sequence[int]) -> TokenBatch:
    """Return completions of one token each, in the given groups, as a batch for an objective over groups."""
    nothing = torch.zeros(len(reward), dtype=torch.float64)
    return make_batch(
        advantage=nothing,
        behaviour=nothing,
        old=nothing,
        reference=torch.tensor(reference, dtype=torch.float64),
        reward=torch.tensor(reward, dtype=torch.float64),
        group=torch.tensor(group),
    )


def losses(objective: Objective, logits: Tensor, pairs: Tensor = PAIRS, **more: Any) -> Tensor:
    """Return the loss of each pair under the policy with these logits [answers]; gradient flows."""
    return objective(logits.log_softmax(0)[pairs], batch_of_pairs(pairs, **more))[0]


def mean_gradient(
    objective: Objective, logits: Tensor, chance: Tensor = CHANCE, pairs: Tensor = PAIRS, **more: Any
) -> Tensor:
    """Return the exact gradient of the expected loss with respect to the logits, [answers]."""
    logits = logits.clone().requires_grad_()
    return torch.autograd.grad((chance * losses(objective, logits, pairs, **more)).sum(), logits)[0]


def optimum(beta: float) -> Tensor:
    """Return the logits of the policy that maximises the expected reward minus beta times the KL to the reference."""
    return REFERENCE + REWARDS / beta
