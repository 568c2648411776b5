"""One round's fit of a critic to returns.

    loss of a minibatch = mean over its tokens of loss(V_t, R_t)

The mean is over the whole minibatch before it is cut into rows, so the result does not depend on the cut.
"""

from __future__ import annotations

import torch
from torch import Tensor

from models.base.errors import UserError
from models.learner.packing import PerToken, Sequences
from models.learner.rows import rows_of
from models.learner.upload import to_device
from models.learner.whole_weights import ranks_of
from models.method.episode_parts import places_of, rows_of_parts
from models.method.fit import minibatches
from models.method.learner import Companion
from models.method.rollout import Rollout, parts_of, privileged_sequences
from models.method.schedule import BUDGET_KEY
from models.method.scored import Scored
from models.reward_models.critic.losses import loss_of, values_of
from models.reward_models.critic.model import Critic


def critic_of(companion: Companion) -> Critic:
    """Return the companion's model, which is a critic."""
    assert isinstance(companion.model, Critic), "the companion was made by new_critic"
    return companion.model


def seen_by(critic: Critic, scored: Scored) -> Sequences:
    """Return what a critic reads: completions after their prompts, or after their privileged contexts, [sequences].

    A completion without a context of its own is read after its prompt.

    Raises:
        UserError: the critic sees privileged contexts, but no completion has one.
    """
    if critic.settings.sees == "prompt":
        return scored.sequences
    if scored.rollouts and all(part.source.privileged is None for part in parts_of(scored.rollouts)):
        raise UserError(
            "advantage.critic.sees is privileged, but no completion of the round has a context; set rollouts.name to "
            "privileged, or sees to prompt"
        )
    return privileged_sequences(scored.rollouts)


def trained_mask(rollout: Rollout) -> Tensor:
    """Mark the tokens that the policy wrote and learns from, [tokens], bool: only their returns depend on it."""
    return torch.tensor(rollout.trained or (True,) * len(rollout.completion))


def fit_critic(
    companion: Companion,
    chosen: Scored,
    returns: PerToken,
    old: PerToken,
    *,
    counted: PerToken | None = None,
    autocast: torch.dtype | None = None,
    token_budget: int = 16384,
) -> dict[str, float]:
    """Take the round's optimiser steps on the critic, in place.

    Args:
        companion: the critic, its optimiser and its count of steps.
        chosen: the round's completions, [completions]; a minibatch is made of whole groups.
        returns: targets of the critic, [completions] tensors of [tokens of it].
        old: its values at the beginning of the round, likewise.
        counted: mask of the tokens that it learns at, likewise, bool; None: those that the policy learns from.
        autocast: precision of the backbone's matrix products.
        token_budget: tokens of one packed row; memory only.

    Returns:
        Means over the tokens seen: loss, absolute error; the mean gradient norm; the share of the returns' variance
        that the old values explain. Empty if no token counts.

    Raises:
        UserError: the loss or a gradient is not finite.
    """
    critic = critic_of(companion)
    settings, sequences = critic.settings, seen_by(critic, chosen)
    rollouts, places = chosen.rollouts, places_of(chosen.rollouts)
    masks = counted if counted is not None else [trained_mask(rollout) for rollout in rollouts]
    masks, returns, old = (rows_of_parts(rows, rollouts) for rows in (masks, returns, old))
    ranks, place = ranks_of(critic), critic.head.weight.device
    critic.eval()  # as when the old values were read: dropout would look like a change of the values
    losses = errors = torch.zeros((), dtype=torch.float64, device=place)
    norms = 0.0
    token_count = steps = 0
    for _ in range(settings.epochs):
        for rows in minibatches(chosen, settings.minibatches):
            rows = [place for index in rows for place in places[index] if masks[place].any()]
            tokens = sum(int(masks[index].sum()) for index in rows)
            if not tokens:
                continue
            step_loss = torch.zeros_like(losses)
            for row in rows_of(critic, sequences, token_budget, among=rows, setting=BUDGET_KEY):
                indices = row.indices
                kept = to_device(torch.cat([masks[index] for index in indices]).nonzero().squeeze(1), place)
                outputs = critic.outputs(row.sequences, autocast)[kept]
                target, before = (
                    to_device(torch.cat([given[index] for index in indices]), place, outputs.dtype)[kept]
                    for given in (returns, old)
                )
                loss = loss_of(outputs, target, before, settings).sum()
                row.backward(loss / tokens)
                if row.counts:
                    step_loss = step_loss + loss.detach().double()
                    errors = errors + (values_of(outputs.detach(), settings) - target).abs().double().sum()
            step_loss = ranks.sum(step_loss)
            norms += companion.step(settings.optimiser, "advantage.critic.optimiser", step_loss)
            losses = losses + step_loss
            token_count, steps = token_count + tokens, steps + 1
    if not steps:
        return {}
    targets, old_values = (
        torch.cat([row[mask] for row, mask in zip(given, masks, strict=True)]) for given in (returns, old)
    )
    return {
        "loss": float(losses) / token_count,
        "error": float(ranks.sum(errors)) / token_count,
        "gradient_norm": norms / steps,
        "explained_variance": explained_variance(old_values, targets),
    }


def explained_variance(values: Tensor, returns: Tensor) -> float:
    """Compute 1 - var(returns - values) / var(returns).

    It is one for a perfect critic, zero for a constant and for flat returns.

    Never below minus one: if the returns hardly spread, a lower number would only reflect their small variance.
    """
    variance = float(returns.double().var(unbiased=False))
    residual = float((returns.double() - values.double()).var(unbiased=False))
    return max(-1.0, 1.0 - residual / variance) if variance > 0 else 0.0
