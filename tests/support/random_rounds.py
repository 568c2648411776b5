"""Random completions of unequal length, in the project's rows and as the padded tables of published code."""

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
    """Log-probs of the policy now, [tokens], and the rest of the batch, float64.

    Args:
        move: nats by which a token's log-prob has moved since the round began, one deviation.
        gap: nats by which the engine's differ from the learner's.
        by_token: whether the tokens of a completion have advantages of their own.
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
    """A row of tokens as a table, [completions, longest]; gradient flows."""
    return torch.nn.utils.rnn.pad_sequence(values.split(LENGTHS), batch_first=True, padding_value=fill)


def mask() -> Tensor:
    """Which places of the table hold a token, [completions, longest], 0 or 1."""
    return padded(torch.ones(TOKENS, dtype=torch.float64))


def completion_weights() -> Tensor:
    """Weight of each token where every completion counts the same, [tokens]."""
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
    """Loss and gradient of the objective are those of a published formula, to 1e-12.

    Args:
        objective: the part.
        reference: gets log-probs and batch, gives the loss of the whole batch, a number.
        weights: how the objective's losses are summed, [units]; None: their mean.
        loss: whether the loss is the formula's too; where False, the gradient alone.
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
