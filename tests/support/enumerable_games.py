"""A game of preferences that go round in a circle, played by a softmax policy whose every draw can be enumerated.

Paper beats rock by 0.8, rock scissors by 0.4, scissors paper by 0.6; no scalar reward agrees with that. Answers are one
token each, so that means over all pairs are exact, and so is the equilibrium that they are compared with.
"""

from itertools import permutations

import torch
from torch import Tensor

from models.method.objective import Objective
from models.method.token_batch import TokenBatch
from tests.support.tiny_batches import make_batch

MARGIN = torch.tensor([[0.0, -0.8, 0.4], [0.8, 0.0, -0.6], [-0.4, 0.6, 0.0]], dtype=torch.float64)
PREFERENCE = 0.5 + MARGIN / 2
"""P(row beats column), [3, 3]."""
REFERENCE = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64).log()
ORDERED = torch.tensor(list(permutations(range(3), 2)))
"""Every better answer with every worse one, [6, 2]. Two equal answers are no pair."""


def mixed(logits: Tensor, share: float, reference: Tensor = REFERENCE) -> Tensor:
    """Log-probs of policy^(1 - share) * reference^share, normalised, [3]."""
    return ((1 - share) * logits.log_softmax(0) + share * reference).log_softmax(0)


def held_equilibrium(
    strength: float, share: float = 0.0, reference: Tensor = REFERENCE, preference: Tensor = PREFERENCE
) -> Tensor:
    """Log-probs of the policy proportional to reference * exp(P(. > opponent) / strength), [3], by iteration.

    Its opponent is the mixture of itself with `share` of the reference; without it the policy is the Nash equilibrium
    of the game in which each side pays `strength` times its KL to the reference.
    """
    logits = reference
    for _ in range(4000):
        wins = preference @ mixed(logits, share, reference).exp()
        logits = (0.98 * logits + 0.02 * (reference + wins / strength)).log_softmax(0)
    return logits


def pairs_by_chance(drawn: Tensor) -> Tensor:
    """How often each ordered pair is seen, [6]: both answers from `drawn` [3] log-probs, the better by preference."""
    return drawn.detach().exp()[ORDERED].prod(-1) * PREFERENCE[ORDERED[:, 0], ORDERED[:, 1]]


def batch_of_pairs(old: Tensor = REFERENCE) -> TokenBatch:
    """The ordered pairs as an objective sees them: one token a completion, two completions a pair."""
    answers = ORDERED.flatten()
    nothing = torch.zeros(len(answers), dtype=torch.float64)
    return make_batch(
        advantage=nothing,
        behaviour=nothing,
        old=old.detach()[answers],
        reference=REFERENCE[answers],
        pairs=torch.arange(len(answers)).reshape(-1, 2),
    )


def mean_gradient_of_pairs(objective: Objective, logits: Tensor, drawn: Tensor, old: Tensor = REFERENCE) -> Tensor:
    """Exact gradient of the expected loss with respect to the logits, [3], the sampler held fixed."""
    logits = logits.detach().clone().requires_grad_()
    losses, _ = objective(logits.log_softmax(0)[ORDERED], batch_of_pairs(old))
    return torch.autograd.grad((pairs_by_chance(drawn) * losses).sum(), logits)[0]
