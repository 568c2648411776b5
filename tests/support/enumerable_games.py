"""A game with cyclic preferences, and a softmax policy for it whose samples can all be enumerated.

Paper beats rock by 0.8, rock beats scissors by 0.4, and scissors beat paper by 0.6. No scalar reward has these
preferences. Each answer is one token. Means over all pairs are therefore exact, and so is the equilibrium that tests
compare them with.
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
"""All ordered pairs of two different answers, the better one first, [6, 2]."""


def mixed(logits: Tensor, share: float, reference: Tensor = REFERENCE) -> Tensor:
    """Return the log-probs of policy^(1 - share) * reference^share, normalised, [3]."""
    return ((1 - share) * logits.log_softmax(0) + share * reference).log_softmax(0)


def held_equilibrium(
    strength: float, share: float = 0.0, reference: Tensor = REFERENCE, preference: Tensor = PREFERENCE
) -> Tensor:
    """Return the log-probs of the policy proportional to reference * exp(P(. > opponent) / strength), [3].

    They are computed by iteration. The opponent is the mixture of the policy with `share` of the reference. If `share`
    is 0, the policy is the Nash equilibrium of the game in which each side pays `strength` times its KL to the
    reference.
    """
    logits = reference
    for _ in range(4000):
        wins = preference @ mixed(logits, share, reference).exp()
        logits = (0.98 * logits + 0.02 * (reference + wins / strength)).log_softmax(0)
    return logits


def pairs_by_chance(drawn: Tensor) -> Tensor:
    """Return the probability of each ordered pair, [6].

    Both answers are drawn from the log-probs `drawn` [3]; the preference decides which one is better.
    """
    return drawn.detach().exp()[ORDERED].prod(-1) * PREFERENCE[ORDERED[:, 0], ORDERED[:, 1]]


def batch_of_pairs(old: Tensor = REFERENCE) -> TokenBatch:
    """Return the ordered pairs as a batch for an objective: one token per completion, two completions per pair."""
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
    """Return the exact gradient of the expected loss with respect to the logits, [3], with a fixed sampler."""
    logits = logits.detach().clone().requires_grad_()
    losses, _ = objective(logits.log_softmax(0)[ORDERED], batch_of_pairs(old))
    return torch.autograd.grad((pairs_by_chance(drawn) * losses).sum(), logits)[0]
