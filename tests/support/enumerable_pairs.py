"""A softmax policy over a handful of answers, each one token: every pair of answers can be enumerated.

Pairs are of two different answers; which one is better is drawn by Bradley-Terry in known rewards. Means over all of
them are exact, and so is the policy that maximises reward less KL: ref exp(reward / beta), normalised.
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
"""Every better answer with every worse one, [12, 2]."""
DRAWN = REFERENCE.exp()[PAIRS].prod(-1) * torch.sigmoid(REWARDS[PAIRS[:, 0]] - REWARDS[PAIRS[:, 1]])
CHANCE = DRAWN / DRAWN.sum()
"""How often each pair is seen, [12]: both answers drawn from the reference, the better one by Bradley-Terry."""


def batch_of_pairs(pairs: Tensor, reference: Tensor = REFERENCE, **more: Any) -> TokenBatch:
    """Pairs of answers as an objective sees them: one token a completion, two completions a pair.

    The reference is given by answer, [answers]; `more` are fields of the batch, by token or completion.
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
    """Completions of one token each, of these groups, as an objective over groups sees them."""
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
    """Loss of each pair under the policy with these logits [answers]; gradient flows."""
    return objective(logits.log_softmax(0)[pairs], batch_of_pairs(pairs, **more))[0]


def mean_gradient(
    objective: Objective, logits: Tensor, chance: Tensor = CHANCE, pairs: Tensor = PAIRS, **more: Any
) -> Tensor:
    """Exact gradient of the expected loss with respect to the logits, [answers]."""
    logits = logits.clone().requires_grad_()
    return torch.autograd.grad((chance * losses(objective, logits, pairs, **more)).sum(), logits)[0]


def optimum(beta: float) -> Tensor:
    """Logits of the policy that maximises expected reward less beta times the KL to the reference."""
    return REFERENCE + REWARDS / beta
