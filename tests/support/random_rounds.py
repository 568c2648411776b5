"""Random completions of unequal length, in the project's rows and in the padded tables of published code."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from models.method.token_batch import TokenBatch
from tests.support.tiny_batches import make_batch

LENGTHS = (3, 1, 5, 2, 4)
TOKENS = sum(LENGTHS)


def random_round(
    seed: int = 0, *, move: float = 0.4, gap: float = 0.3, by_token: bool = False
) -> tuple[Tensor, TokenBatch]:
    """Return the log-probs under the present policy, [tokens], and the rest of the batch, float64.

    Args:
        move: standard deviation of the change of a log-prob since the round began, nats.
        gap: standard deviation of the difference between the log-probs of engine and learner, nats.
        by_token: whether each token of a completion has an advantage of its own.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(count: int = TOKENS) -> Tensor:
        return torch.randn(count, dtype=torch.float64, generator=generator)

    completion = torch.arange(len(LENGTHS)).repeat_interleave(torch.tensor(LENGTHS))
    old = -normal().abs() - 0.1
    advantage = normal() if by_token else normal(len(LENGTHS))[completion]
    seen = make_batch(
        advantage, old + gap * normal(), old, reference=old + 0.5 * normal(), completion=completion, entropy=-old
    )
    return old + move * normal(), seen


def padded(values: Tensor, fill: float = 0.0) -> Tensor:
    """Return a row of tokens as a table, [completions, longest]; gradient flows."""
    return torch.nn.utils.rnn.pad_sequence(values.split(LENGTHS), batch_first=True, padding_value=fill)


def mask() -> Tensor:
    """Return the mask of the table: 1 where it holds a token, otherwise 0, [completions, longest]."""
    return padded(torch.ones(TOKENS, dtype=torch.float64))


def completion_weights() -> Tensor:
    """Return the weight of each token if every completion has the same total weight, [tokens]."""
    lengths = torch.tensor(LENGTHS, dtype=torch.float64)
    return (1.0 / (len(LENGTHS) * lengths)).repeat_interleave(torch.tensor(LENGTHS))


def assert_same(
    objective: Any,
    reference: Callable[[Tensor, TokenBatch], Tensor],
    seed: int = 0,
    weights: Tensor | None = None,
    *,
    loss: bool = True,
    **settings: Any,
) -> None:
    """Assert that loss and gradient of the objective equal those of a published formula to 1e-12.

    Args:
        objective: the part.
        reference: returns the loss of the whole batch, a number, from log-probs and batch.
        weights: weights of the sum of the objective's losses, [units]; None: their mean.
        loss: whether to compare the losses too; if False, only the gradients are compared.
    """
    log_prob, seen = random_round(seed, **settings)
    log_prob.requires_grad_()
    shown = seen.sum_by_completion(log_prob) if objective.level == "completion" else log_prob
    losses, _ = objective(shown, seen)
    ours = losses.mean() if weights is None else (weights * losses).sum()
    theirs = reference(log_prob, seen)
    if loss:
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    grads = [torch.autograd.grad(value, log_prob)[0] for value in (ours, theirs)]
    assert grads[1].abs().max() > 1e-3
    torch.testing.assert_close(*grads, rtol=0, atol=1e-12)
