"""Random pairs of answers of different lengths, to compare objectives with published formulas, one pair at a time.

The arguments of a formula are the log-probs of the tokens of one pair, [tokens] each: of the better and the worse
answer under the policy, then of both under the reference. A formula uses none of the code that it is compared with.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from models.method.objective import Objective
from models.method.token_batch import TokenBatch
from tests.support.tiny_batches import make_batch

PAIRS, LONGEST = 6, 7


@dataclass(frozen=True)
class Pairs:
    """Random pairs of answers. In every other pair, the worse answer comes first."""

    log_prob: torch.Tensor
    """Log-prob of every token, [tokens], float64; a leaf."""
    batch: TokenBatch

    def answers(self, values: Tensor, number: int) -> list[Tensor]:
        """Return the token values of the better and the worse answer of a pair, [tokens] each."""
        assert self.batch.pairs is not None
        return [values[self.batch.completion == int(place)] for place in self.batch.pairs[number]]


def random_pairs(seed: int = 0, spread: float = 1.0, **more: Any) -> Pairs:
    """Return random pairs. `more` are fields of the batch.

    The negative log-probs are exponentially distributed with a mean of `spread` nats.
    """
    drawn = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, LONGEST + 1, (2 * PAIRS,), generator=drawn)
    tokens = int(lengths.sum())

    def some() -> Tensor:
        return spread * torch.rand(tokens, generator=drawn, dtype=torch.float64).log()

    places = torch.arange(2 * PAIRS).reshape(PAIRS, 2)
    places[1::2] = places[1::2].flip(-1)
    nothing, log_prob = torch.zeros(tokens, dtype=torch.float64), some()
    batch = make_batch(
        advantage=nothing,
        behaviour=nothing,
        old=log_prob,
        reference=some(),
        completion=torch.arange(2 * PAIRS).repeat_interleave(lengths),
        pairs=places,
        group=torch.arange(2 * PAIRS) // 2,
        **more,
    )
    return Pairs(log_prob.requires_grad_(), batch)


def as_it_is(objective: Objective, pairs: Pairs) -> tuple[Tensor, Tensor]:
    """Return the loss of each pair [pairs] and the gradient of their sum [tokens]; call an objective as a fit does."""
    loss, _ = objective(pairs.batch.by_pair(pairs.log_prob), pairs.batch)
    return loss, torch.autograd.grad(loss.sum(), pairs.log_prob)[0]


def as_published(formula: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor], pairs: Pairs) -> tuple[Tensor, Tensor]:
    """Return the loss of each pair [pairs] and the gradient of their sum [tokens]; call a formula for each pair."""
    reference = pairs.batch.reference
    assert reference is not None
    loss = torch.stack(
        [formula(*pairs.answers(pairs.log_prob, number), *pairs.answers(reference, number)) for number in range(PAIRS)]
    )
    return loss, torch.autograd.grad(loss.sum(), pairs.log_prob)[0]


def gap(objective: Objective, formula: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor], pairs: Pairs) -> float:
    """Return the largest difference between an objective and a formula, in loss or gradient."""
    mine, published = as_it_is(objective, pairs), as_published(formula, pairs)
    return max(float((first - other).detach().abs().max()) for first, other in zip(mine, published, strict=True))
