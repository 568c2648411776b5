"""Rewards of tokens smoothed over windows of neighbours, in reward and loss alike (PCPG, paper 334).

    R_j = sum over t of K_jt r_t,   L_j = sum over t of K_jt log pi_t          window j: tokens around token j
    loss = -sum over j of R_j L_j                           so that A_t = sum over j of K_jt R_j, less a baseline

A kernel slides over the rewards and over the losses of the tokens, as a convolution with fixed weights does. A token is
thus judged by the rewards near it, before and after: by fewer than the return, which adds the noise of all later ones,
and by more than its own, which is zero at most tokens. Row j of K holds the weights of a window, whose sum is one. The
baseline is the mean of A_t over the other completions of the prompt that reach token t.

A window of one token gives the reward of the token itself. A window over a whole completion gives every token the mean
of its rewards: the policy gradient of whole sequences. The environment's tokens belong to no window.

Derived from the paper's abstract: the form of its kernel and its baseline are not verified.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import conv1d, conv_transpose1d

from models.base.bounds import Positive
from models.method.advantage import Advantage, Signal
from models.method.registry import part
from models.method.resources import RunResources
from models.method.scored import Scored
from models.parts.shared.of_turns import less_the_others
from models.parts.shared.written_tokens import spread_rows, written_rows

Shape = Literal["uniform", "triangular"]


def smoothed(rewards: Tensor, window: int, stride: int, shape: Shape) -> Tensor:
    """Apply the kernel to rewards and, transposed, to the losses: K^T K r, [tokens], in the precision of the rewards.

    Args:
        rewards: rewards of the tokens of a completion, [tokens].
        window: tokens on which a window has weight, an odd number; those beyond the completion's ends are left out.
        stride: tokens between the centres of two windows, the first of which is the first token.
        shape: uniform: equal weights; triangular: they fall with the distance from the centre.
    """
    reach = min(window // 2, len(rewards) - 1)
    distance = torch.arange(-reach, reach + 1, device=rewards.device).abs().to(rewards)
    weights = torch.ones_like(distance) if shape == "uniform" else 1.0 - distance / (window // 2 + 1)
    weights, row = weights[None, None], rewards[None, None]
    total = conv1d(torch.ones_like(row), weights, stride=stride, padding=reach)
    windows = conv1d(row, weights, stride=stride, padding=reach) / total
    beyond = (len(rewards) - 1) % stride
    return conv_transpose1d(windows / total, weights, stride=stride, padding=reach, output_padding=beyond)[0, 0]


@part("windowed")
class Windowed(Advantage):
    """Token rewards less those of the group's others, smoothed over neighbouring tokens."""

    needs_group = True
    needs_token_rewards = True
    window: Positive = 5
    """Number of tokens of a window, odd; 1: each token has its own reward alone."""
    stride: Positive = 1
    """Number of tokens between the centres of two windows, at most `window`."""
    shape: Shape = "uniform"
    """Weights of a window: equal, or falling with the distance from its centre."""

    def __post_init__(self) -> None:
        """Raise an error for windows without a centre, or that leave tokens out."""
        if self.window % 2 == 0:
            raise ValueError(
                f"window is {self.window}, but a window has a token as its centre; set it to an odd number"
            )
        if self.stride > self.window:
            raise ValueError(
                f"stride is {self.stride}, but a window has {self.window} tokens, so that some would be in no window"
            )

    def __call__(self, resources: RunResources, scored: Scored) -> Signal:
        """Compute advantages token by token."""
        rollouts = scored.rollouts
        earned = written_rows([row.double() for row in scored.rewards_by_token()], rollouts)
        values = [smoothed(row, self.window, self.stride, self.shape) for row in earned]
        centred = less_the_others(values, [range(len(row)) for row in values], scored.groups)
        return Signal(spread_rows([row.float() for row in centred], rollouts))
