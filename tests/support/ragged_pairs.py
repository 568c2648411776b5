"""Random pairs of answers of different lengths, and formulas of pairs written plainly, one pair at a time.

What a formula is given are the log-probs of the tokens of one pair, [tokens] each: of the better answer and the worse
one under the policy, then under the reference. It uses nothing of the code that it is held against.
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
    """Answers of random pairs, the worse one first in every other pair."""

    log_prob: torch.Tensor
    """Of every token, [tokens], float64; a leaf."""
    batch: TokenBatch

    def answers(self, values: Tensor, number: int) -> list[Tensor]:
        """Token values of the better and the worse answer of a pair, [tokens] each."""
        assert self.batch.pairs is not None
        return [values[self.batch.completion == int(place)] for place in self.batch.pairs[number]]


def random_pairs(seed: int = 0, spread: float = 1.0, **more: Any) -> Pairs:
    """Pairs whose log-probs are minus exponentially distributed, mean `spread` nats; `more` are fields of the batch."""
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
    """Loss of each pair [pairs] and its sum's gradient [tokens], from the objective as the fit calls it."""
    loss, _ = objective(pairs.batch.by_pair(pairs.log_prob), pairs.batch)
    return loss, torch.autograd.grad(loss.sum(), pairs.log_prob)[0]


def as_published(formula: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor], pairs: Pairs) -> tuple[Tensor, Tensor]:
    """Loss of each pair [pairs] and its sum's gradient [tokens], from a formula of one pair."""
    reference = pairs.batch.reference
    assert reference is not None
    loss = torch.stack(
        [formula(*pairs.answers(pairs.log_prob, number), *pairs.answers(reference, number)) for number in range(PAIRS)]
    )
    return loss, torch.autograd.grad(loss.sum(), pairs.log_prob)[0]


def gap(objective: Objective, formula: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor], pairs: Pairs) -> float:
    """Largest difference between an objective and a formula, of loss or gradient."""
    mine, published = as_it_is(objective, pairs), as_published(formula, pairs)
    return max(float((first - other).detach().abs().max()) for first, other in zip(mine, published, strict=True))
