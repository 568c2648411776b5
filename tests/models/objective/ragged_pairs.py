"""Random pairs of answers of different lengths, and formulas of pairs written plainly, one pair at a time.

What a formula is given are the log-probs of the tokens of one pair, [tokens] each: of the better answer and the worse
one under the policy, then under the reference. It uses nothing of the code that it is held against.
"""

from dataclasses import dataclass

import torch
from tiny_batches import make_batch

PAIRS, LONGEST = 6, 7


@dataclass(frozen=True)
class Pairs:
    """Answers of random pairs, the worse one first in every other pair."""

    log_prob: torch.Tensor
    """Of every token, [tokens], float64; a leaf."""
    batch: object

    def answers(self, values, number):
        """Token values of the better and the worse answer of a pair, [tokens] each."""
        return [values[self.batch.completion == int(place)] for place in self.batch.pairs[number]]


def random_pairs(seed=0, spread=1.0, **more):
    """Pairs whose log-probs are minus exponentially distributed, mean `spread` nats; `more` are fields of the batch."""
    drawn = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, LONGEST + 1, (2 * PAIRS,), generator=drawn)
    tokens = int(lengths.sum())

    def some():
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


def as_it_is(objective, pairs):
    """Loss of each pair [pairs] and its sum's gradient [tokens], from the objective as the fit calls it."""
    loss, _ = objective(pairs.batch.by_pair(pairs.log_prob), pairs.batch)
    return loss, torch.autograd.grad(loss.sum(), pairs.log_prob)[0]


def as_published(formula, pairs):
    """Loss of each pair [pairs] and its sum's gradient [tokens], from a formula of one pair."""
    loss = torch.stack(
        [
            formula(*pairs.answers(pairs.log_prob, number), *pairs.answers(pairs.batch.reference, number))
            for number in range(PAIRS)
        ]
    )
    return loss, torch.autograd.grad(loss.sum(), pairs.log_prob)[0]


def gap(objective, formula, pairs):
    """Largest difference between an objective and a formula, of loss or gradient."""
    mine, published = as_it_is(objective, pairs), as_published(formula, pairs)
    return max(float((first - other).detach().abs().max()) for first, other in zip(mine, published, strict=True))
