"""What an objective sees, for tests of its formula alone."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from models.method.objective import Objective
from models.method.problem import Origin
from models.method.token_batch import TokenBatch


def numbers(*values: float) -> Tensor:
    """Values to compute with by hand, [values], float64."""
    return torch.tensor(values, dtype=torch.float64)


def gradient_of(objective: Objective, log_prob: Tensor, seen: TokenBatch) -> Tensor:
    """The gradient of the sum of an objective's losses with respect to the log-probs, in their shape."""
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
    """A whole batch around what a test says of it.

    Where it says nothing, each token is a completion of its own (`completion`), each completion stands alone (`group`),
    is the policy's (`origins`) and worth nothing (`reward`), no token has any entropy or is `marked`, and the sampler
    (`behaviour`) is the policy as the round began.
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
    """Completions of one token each, drawn by the policy as the round began where `behaviour` says nothing else."""
    return make_batch(advantage, behaviour, old, reference)
