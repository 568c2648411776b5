"""Contrastive losses on hidden states, in addition to the preference loss of a reward model.

    goal     -log mean sigmoid(cos(h_s, h_g)) - log(1 - mean sigmoid(cos(h_s, h_r)))        paper 203, arXiv 2407.13887
             h_s, h_g: states of the chosen completion, g at s or after it; h_r: states of the rejected one
    batch    -log( exp(cos(u_i, v_i) / T) / sum_j exp(cos(u_i, v_j) / T) )                  paper 205, arXiv 2401.06080
             u_i, v_i: one representation under two masks of dropout; j: all of the batch

The first makes states similar to the later states of preferred completions, so that a partial completion shows where it
leads. It is computed per pair; the paper's sampled states are replaced by the mean over all selected states, which they
estimate. The second spreads the representations of a batch over the sphere and separates similar ones (SimCSE). Its
loss is over the whole batch, which may be several rows: `batch_gradient` computes the gradient for each representation
from a forward pass without gradient, and the rows then apply it one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor
from torch.nn import functional

from models.learner.packing import Sequences
from models.learner.rows import from_every_rank, rows_of
from models.reward_models.model import score_and_states

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LEAST = 1e-3
"""Length below which a representation is rounding error without a direction, so its gradient must not explode."""


@dataclass(frozen=True, kw_only=True)
class ContrastSettings:
    """Weights of the two contrastive losses. Section `reward_model.fit.contrast:`."""

    goal: NonNegativeFloat = 0.0
    """Weight of the contrast of each pair's states (paper 203: 0.5)."""
    states: Annotated[int, Field(ge=2)] = 64
    """Maximum number of states per completion, evenly spaced, including the last."""
    batch: NonNegativeFloat = 0.0
    """Weight of the contrast within the batch (paper 205)."""
    of: Literal["answers", "differences"] = "differences"
    """Representations in the batch's contrast: the last state of every answer, or of chosen minus rejected of every
    pair."""
    dropout: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Share of a representation that each of its two dropout masks removes."""
    temperature: PositiveFloat = 0.05
    """Temperature T."""


def spaced(tokens: int, most: int) -> list[int]:
    """Return the positions of at most `most` states of `tokens`, evenly spaced, including the first and the last."""
    if tokens <= most:
        return list(range(tokens))
    return [round(number * (tokens - 1) / (most - 1)) for number in range(most)]


def goal_contrast(chosen: Tensor, rejected: Tensor) -> Tensor:
    """Compute the contrast of one pair in nats, scalar; gradient flows.

    Args:
        chosen: states of the better completion in their order, [tokens, hidden].
        rejected: states of the worse one, [tokens of it, hidden].
    """
    better, worse = functional.normalize(chosen, dim=-1), functional.normalize(rejected, dim=-1)
    later = torch.ones(len(better), len(better), dtype=torch.bool, device=better.device).triu()
    towards = torch.sigmoid(better @ better.T)[later].mean()
    away = torch.sigmoid(better @ worse.T).mean()
    return -towards.log() - torch.log1p(-away)


def batch_contrast(states: Tensor, settings: ContrastSettings, seed: int) -> Tensor:
    """Compute the contrast of a batch in nats, the mean over its representations, scalar; gradient flows.

    Args:
        states: last states of the chosen and the rejected completion of each pair, [pairs, 2, hidden].
        settings: settings of the contrast.
        seed: seed of the masks.
    """
    held = states.flatten(0, 1) if settings.of == "answers" else states[:, 0] - states[:, 1]
    generator = torch.Generator().manual_seed(seed)
    kept = (torch.rand(2, *held.shape, generator=generator) >= settings.dropout).to(held)
    views = functional.normalize(held * kept, dim=-1, eps=LEAST)
    odds = views[0] @ views[1].T / settings.temperature
    return functional.cross_entropy(odds, torch.arange(len(held), device=held.device))


def batch_gradient(states: Tensor, settings: ContrastSettings, seed: int) -> tuple[Tensor, Tensor]:
    """Compute the batch's contrast, scalar, and its gradient with respect to the states, [pairs, 2, hidden].

    The arguments are those of `batch_contrast`.
    """
    free = states.detach().requires_grad_()
    with torch.enable_grad():
        loss = batch_contrast(free, settings, seed)
        (gradient,) = torch.autograd.grad(loss, free)
    return loss.detach(), gradient


def pull_of_batch(
    model: PreTrainedModel,
    both: Sequences,
    together: Sequence[int],
    token_budget: int,
    settings: ContrastSettings,
    seed: int,
    autocast: torch.dtype | None,
) -> tuple[Tensor, Tensor]:
    """Compute `batch_gradient` from last states that are read row by row, without gradient.

    The result is exact for a model without dropout of its own.

    Args:
        both: the chosen and the rejected completion of each pair, side by side, [2 * pairs].
        together: index of the pair of each, [2 * pairs].
        token_budget: tokens of a packed row; affects memory only.
        seed: see `batch_contrast`.
    """
    known: dict[int, Tensor] = {}
    with torch.no_grad():
        for row in rows_of(model, both, token_budget, together=together, setting="reward_model.fit.token_budget"):
            _, states = score_and_states(model, row.sequences, autocast)
            known |= dict(zip(row.indices, [of[-1] for of in states], strict=True)) if row.counts else {}
    known = from_every_rank(model, known, model.device)
    last = torch.stack([known[place] for place in range(len(both))])
    return batch_gradient(last.unflatten(0, (-1, 2)), settings, seed)


def row_contrast(
    states: Sequence[Tensor], settings: ContrastSettings, pull: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Compute a row's sum of goal contrasts, and its term of the batch contrast, both scalars.

    The gradient of the term is this row's part of the batch contrast's gradient. Without `pull` the term is None.

    Args:
        states: states of the chosen and the rejected completion of each pair, side by side, [2 * pairs of the row]
            tensors of [tokens of it, hidden].
        settings: settings of the contrast.
        pull: gradient of the last states of these pairs, [pairs of the row, 2, hidden]; None: no batch contrast.
    """
    looked_at = [of[spaced(len(of), settings.states)] for of in states] if settings.goal else []
    goals = [goal_contrast(*looked_at[at : at + 2]) for at in range(0, len(looked_at), 2)]
    goal = torch.stack(goals).sum() if goals else states[0].new_zeros(())
    if pull is None:
        return goal, None
    return goal, (torch.stack([of[-1] for of in states]) * pull.flatten(0, 1)).sum()
