"""Log-probs, hidden states or other values of many completions, computed in packed rows without gradient or dropout."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from models.learner.distribution import MODEL_DISTRIBUTION, Distribution, Mask
from models.learner.eval_mode import in_eval_mode
from models.learner.log_probs import completion_log_probs, completion_states
from models.learner.packing import Sequences
from models.learner.rows import from_every_rank, rows_of
from models.learner.upload import to_device


@torch.no_grad()
def read_each(
    model: nn.Module,
    sequences: Sequences,
    read: Callable[[Sequences, Sequence[int]], Tensor],
    *,
    token_budget: int = 16384,
    setting: str = "token_budget",
) -> list[Tensor]:
    """Call `read` on each packed row and return its values by completion, [completions] tensors of [tokens of it, ...].

    It runs without gradient and without dropout.

    Args:
        model: the model to read.
        sequences: [completions].
        read: sequences of a row and their indices -> a value for each completion token, completion after completion.
        token_budget: largest number of tokens of a packed row; affects memory only.
        setting: key of the budget in the recipe, for the error.

    Raises:
        UserError: the budget is smaller than a row.
    """
    known: dict[int, Tensor] = {}
    with in_eval_mode(model):
        for row in rows_of(model, sequences, token_budget, setting=setting):
            values = read(row.sequences, row.indices)
            if row.counts:
                lengths = [len(ids) for ids in row.sequences.completions]
                known.update(zip(row.indices, values.split(lengths), strict=True))
    if len(sequences):
        known = from_every_rank(model, known, values.device)
    return [known[index] for index in range(len(sequences))]


def all_log_probs(
    model: nn.Module,
    sequences: Sequences,
    *,
    distribution: Distribution = MODEL_DISTRIBUTION,
    autocast: torch.dtype | None = None,
    token_budget: int = 16384,
    setting: str = "token_budget",
    masked: Callable[[Sequence[int]], Mask | None] = lambda indices: None,
    kept: Callable[[Sequence[int]], Tensor | None] = lambda indices: None,
) -> list[Tensor]:
    """Compute the log-probs of all completions, [completions] tensors of [tokens of it], nats.

    It runs without gradient and without dropout.

    Args:
        token_budget: largest number of tokens of a packed row; affects memory only.
        setting: key of the budget in the recipe, for the error.
        masked: indices of completions -> their mask, or None without a mask.
        kept: indices of completions -> places of the requested tokens (see `completion_log_probs`), or None for all.
            The log-probs of other tokens are zero.

    Raises:
        UserError: the budget is smaller than a row, or the model cannot read packed rows.
    """

    def read(part: Sequences, indices: Sequence[int]) -> Tensor:
        mask, places = masked(indices), kept(indices)
        if places is not None:
            places = to_device(places, next(model.parameters()).device)
        log_probs, _ = completion_log_probs(
            model, part, distribution=distribution, autocast=autocast, mask=mask, kept=places
        )
        if places is None:
            return log_probs
        return log_probs.new_zeros(sum(map(len, part.completions))).index_copy(
            0, places.to(log_probs.device), log_probs
        )

    return read_each(model, sequences, read, token_budget=token_budget, setting=setting)


def all_states(
    model: nn.Module, sequences: Sequences, *, autocast: torch.dtype | None, token_budget: int, setting: str
) -> list[Tensor]:
    """Compute the hidden states that predict all completion tokens, [completions] tensors of [tokens of it, hidden].

    It runs without gradient and without dropout.

    Args:
        model: the model to read.
        autocast: dtype of the matrix products, None for that of the weights.
        token_budget: largest number of tokens of a packed row; affects memory only.
        setting: key of the budget in the recipe, for the error.

    Raises:
        UserError: the budget is smaller than a row, or the model cannot read packed rows.
    """
    return read_each(
        model,
        sequences,
        lambda part, indices: completion_states(model, part, autocast)[0],
        token_budget=token_budget,
        setting=setting,
    )
