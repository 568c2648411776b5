"""Hidden states of better and worse completions set apart, beside the preference loss of a reward model.

    goal     -log mean sigmoid(cos(h_s, h_g)) - log(1 - mean sigmoid(cos(h_s, h_r)))        paper 203, arXiv 2407.13887
             h_s, h_g: states of the chosen completion, g at s or behind it; h_r: states of the rejected one
    batch    -log( exp(cos(u_i, v_i) / T) / sum_j exp(cos(u_i, v_j) / T) )                  paper 205, arXiv 2401.06080
             u_i, v_i: one representation under two masks of dropout; j: all of the batch

With the first a state looks like what preferred completions come to, so that half a completion tells where it leads. It
belongs to one pair; sampled states are replaced by the mean over all that are looked at, which they estimate. With the
second the representations of a batch are spread over the sphere, and what is nearly alike is told apart (SimCSE). Its
loss is one of the whole batch, which may be several rows: `batch_gradient` gives what each representation has to move
by, from a reading without gradient, and the rows then take it up one by one.
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
from models.reward_model.model import score_and_states

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LEAST = 1e-3
"""Length below which a difference of states is rounding: it has no direction, and its gradient must not explode."""


@dataclass(frozen=True, kw_only=True)
class ContrastSettings:
    """Weights of the two contrasts. Stands under `reward_model.fit.contrast:`."""

    goal: NonNegativeFloat = 0.0
    """Of the contrast of each pair's states (paper 203: 0.5)."""
    states: Annotated[int, Field(ge=2)] = 64
    """Most states of a completion that it looks at, evenly spaced, the last one among them."""
    batch: NonNegativeFloat = 0.0
    """Of the contrast within the batch (paper 205)."""
    of: Literal["answers", "differences"] = "differences"
    """What the batch's contrast tells apart: the last state of every answer, or of every pair chosen less rejected."""
    dropout: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Share of a representation that each of its two masks leaves out."""
    temperature: PositiveFloat = 0.05
    """T."""


def spaced(tokens: int, most: int) -> list[int]:
    """Places of at most `most` states of `tokens`, evenly spaced, the first and the last among them."""
    if tokens <= most:
        return list(range(tokens))
    return [round(number * (tokens - 1) / (most - 1)) for number in range(most)]


def goal_contrast(chosen: Tensor, rejected: Tensor) -> Tensor:
    """Contrast of one pair in nats, scalar; gradient flows.

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
    """Contrast of a batch in nats, the mean over what is told apart, scalar; gradient flows.

    Args:
        states: last states of the chosen and the rejected completion of each pair, [pairs, 2, hidden].
        settings: of the contrast.
        seed: the masks are drawn from it.
    """
    held = states.flatten(0, 1) if settings.of == "answers" else states[:, 0] - states[:, 1]
    generator = torch.Generator().manual_seed(seed)
    kept = (torch.rand(2, *held.shape, generator=generator) >= settings.dropout).to(held)
    views = functional.normalize(held * kept, dim=-1, eps=LEAST)
    odds = views[0] @ views[1].T / settings.temperature
    return functional.cross_entropy(odds, torch.arange(len(held), device=held.device))


def batch_gradient(states: Tensor, settings: ContrastSettings, seed: int) -> tuple[Tensor, Tensor]:
    """The batch's contrast, scalar, and its gradient by the states, as they are, [pairs, 2, hidden]; see
    `batch_contrast`."""
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
    """See `batch_gradient`; the states are read first, row by row. Exact for a model that has no dropout of its own.

    Args:
        both: the chosen and the rejected completion of each pair, side by side, [2 * pairs].
        together: which pair each of them belongs to, [2 * pairs].
        token_budget: tokens of a packed row; memory alone.
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
    """Sum of the goal contrasts of a row's pairs, and what has the gradient of the batch's contrast by this row's
    share, both scalars.

    Args:
        states: of the chosen and the rejected completion of each pair, side by side, [2 * pairs of the row] tensors of
            [tokens of it, hidden].
        settings: of the contrast.
        pull: by what the last states of these pairs move, [pairs of the row, 2, hidden]; None: by nothing.
    """
    looked_at = [of[spaced(len(of), settings.states)] for of in states] if settings.goal else []
    goals = [goal_contrast(*looked_at[at : at + 2]) for at in range(0, len(looked_at), 2)]
    goal = torch.stack(goals).sum() if goals else states[0].new_zeros(())
    if pull is None:
        return goal, None
    return goal, (torch.stack([of[-1] for of in states]) * pull.flatten(0, 1)).sum()
