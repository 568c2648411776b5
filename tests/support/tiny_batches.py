"""Token batches for tests of an objective's formula alone."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from models.method.objective import Objective
from models.method.problem import Origin
from models.method.token_batch import TokenBatch


def numbers(*values: float) -> Tensor:
    """Return the values as a tensor, [values], float64."""
    return torch.tensor(values, dtype=torch.float64)


def gradient_of(objective: Objective, log_prob: Tensor, seen: TokenBatch) -> Tensor:
    """Return the gradient of the sum of an objective's losses with respect to the log-probs, in their shape."""
    log_prob = log_prob.clone().requires_grad_()
    return torch.autograd.grad(objective(log_prob, seen)[0].sum(), log_prob)[0]


def make_batch(
    advantage: Tensor,
    behaviour: Tensor | None,
    old: Tensor,
    reference: Tensor | None = None,
    completion: Tensor | None = None,
    pairs: Tensor | None = None,
    *,
    entropy: Tensor | None = None,
    reward: Tensor | None = None,
    components: Mapping[str, Tensor] | None = None,
    group: Tensor | None = None,
    origins: Sequence[Origin] | None = None,
    progress: float = 0.0,
    marked: Tensor | None = None,
) -> TokenBatch:
    """Make a complete batch from the fields that a test sets.

    By default, each token is a completion of its own (`completion`), and each completion is a group of its own
    (`group`), written by the policy (`origins`) with reward 0 (`reward`). The entropy of each token is 0, and no token
    is `marked`. If `behaviour` is None, the sampler is the policy at the beginning of the round (`old`).
    """
    completion = torch.arange(len(advantage)) if completion is None else completion
    count = int(completion.max()) + 1
    return TokenBatch(
        advantage=advantage,
        behaviour=old if behaviour is None else behaviour,
        old=old,
        reference=reference,
        completion=completion,
        entropy=torch.zeros_like(advantage) if entropy is None else entropy,
        reward=torch.zeros(count, dtype=advantage.dtype) if reward is None else reward,
        components=components or {},
        group=torch.arange(count) if group is None else group,
        origins=["policy"] * count if origins is None else origins,
        progress=progress,
        marked=torch.zeros(len(advantage), dtype=torch.bool) if marked is None else marked,
        pairs=pairs,
    )


def sampled_batch(
    advantage: Tensor, old: Tensor, behaviour: Tensor | None = None, reference: Tensor | None = None
) -> TokenBatch:
    """Make a batch of completions of one token each.

    If `behaviour` is None, they are sampled by the policy at the beginning of the round.
    """
    return make_batch(advantage, behaviour, old, reference)
