"""Losses of a value model, token by token and without reduction.

Squared error, clipped near the old values as in the public code of PPO2 (Schulman et al. 2017, arXiv 1707.06347):

    loss = 1/2 max( (V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2 )

HL-Gauss: classification instead of regression ("Stop Regressing", arXiv 2403.03950; paper 112). The target becomes a
normal distribution of deviation sigma around R, truncated at the ends of the range; the critic's softmax over bins is
fitted to the mass of each bin, and its value is the mean of the bins' centres:

    p_i  = [Phi((z_{i+1} - R) / sigma) - Phi((z_i - R) / sigma)] / [Phi((z_m - R) / sigma) - Phi((z_0 - R) / sigma)]
    loss = - sum_i p_i log q_i,      V = sum_i q_i (z_i + z_{i+1}) / 2

With sigma of 3/4 of a bin the mean of the target's bins is R to 1e-4 of a bin, if R is at least five sigmas inside the
range. At the ends the truncation moves it inwards, by less than 4/5 sigma and half a bin, so the range must be wider
than the returns.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from models.reward_models.critic.settings import CriticSettings


def squared_error(values: Tensor, returns: Tensor, old: Tensor | None = None, clip: float | None = None) -> Tensor:
    """Compute half the squared error of each value, [tokens].

    With `clip` it is the larger of this error and that of the clipped value.

    Args:
        values: the critic's values, [tokens]; gradient flows.
        returns: their targets, [tokens].
        old: the critic's values at the beginning of the round, [tokens]; needed with `clip`.
        clip: largest distance from `old`.
    """
    error = (values - returns).square()
    if clip is None:
        return error / 2
    assert old is not None, "a clipped loss is given the old values"
    held = values.clamp(old - clip, old + clip)
    return torch.maximum(error, (held - returns).square()) / 2


def bin_edges(low: float, high: float, bins: int, like: Tensor) -> Tensor:
    """Return the ends of equal bins, [bins + 1], in the precision and on the device of `like`."""
    return torch.linspace(low, high, bins + 1, dtype=like.dtype, device=like.device)


def smoothed_target(returns: Tensor, edges: Tensor, sigma: float) -> Tensor:
    """Compute the mass of each bin under a normal distribution around each return, cut at the range, [tokens, bins].

    Args:
        returns: targets of the critic, [tokens]; clamped to the range.
        edges: ends of the bins, [bins + 1].
        sigma: deviation of the distribution, in units of the return.
    """
    inside = returns.clamp(edges[0], edges[-1])
    below: Tensor = torch.erf((edges - inside.unsqueeze(-1)) / (sigma * math.sqrt(2.0)))
    return below.diff(dim=-1) / (below[..., -1:] - below[..., :1])


def expectation(probabilities: Tensor, edges: Tensor) -> Tensor:
    """Compute the mean of the bins' centres, [tokens, bins] -> [tokens]; gradient flows."""
    return probabilities @ ((edges[1:] + edges[:-1]) / 2)


def hl_gauss(logits: Tensor, returns: Tensor, edges: Tensor, sigma: float) -> Tensor:
    """Compute the cross-entropy of the critic's bins against the smoothed target, [tokens], in nats.

    Args:
        logits: the critic's outputs, [tokens, bins]; gradient flows.
        returns: targets of the critic, [tokens].
        edges: ends of the bins, [bins + 1].
        sigma: deviation of the target, in units of the return.
    """
    return -(smoothed_target(returns, edges, sigma) * torch.log_softmax(logits, dim=-1)).sum(-1)


def values_of(outputs: Tensor, settings: CriticSettings) -> Tensor:
    """Convert the head's outputs to values, [tokens, outputs] -> [tokens]; gradient flows."""
    if settings.loss == "mse":
        return outputs.squeeze(-1)
    return expectation(outputs.softmax(-1), bin_edges(settings.low, settings.high, settings.bins, outputs))


def loss_of(outputs: Tensor, returns: Tensor, old: Tensor | None, settings: CriticSettings) -> Tensor:
    """Compute the loss of each token that the settings choose, [tokens].

    Args:
        outputs: the head's outputs, [tokens, outputs]; gradient flows.
        returns: targets of the critic, [tokens].
        old: the critic's values at the beginning of the round, [tokens]; needed if the settings have a clip.
        settings: kind of loss and its constants.
    """
    if settings.loss == "mse":
        return squared_error(outputs.squeeze(-1), returns, old, settings.clip)
    edges = bin_edges(settings.low, settings.high, settings.bins, outputs)
    return hl_gauss(outputs, returns, edges, settings.sigma * (settings.high - settings.low) / settings.bins)
