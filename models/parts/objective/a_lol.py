"""Advantage-Leftover Lunch RL (A-LoL; paper 94): offline policy gradient, the whole answer as a single action.

    loss = -A * w * log pi(y),   w = clip(pi(y) / ref(y), 1 - low, 1 + high), no gradient

With one action an episode, importance sampling corrects the data's distribution, which the reference approximates, to
the policy's by a single ratio: grad E_pi[A] = E_ref[pi/ref * A * grad log pi]. The product of all tokens' ratios has a
large variance, so it is clipped; as a weight, not inside the surrogate, so that no answer leaves the loss. `importance:
none` leaves it out: advantage-weighted likelihood. The formula is derived here, from that identity; that the ratio is
clipped as a weight, at these ends, and that log pi is the sum over tokens follow the published code. Its sampling by
advantage is left out: there an answer is drawn the likelier the larger its advantage, here all remaining answers are
drawn with equal probability.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from models.base.bounds import Share
from models.method.objective import Objective
from models.method.registry import part
from models.method.token_batch import TokenBatch


@part("a_lol")
class ALol(Objective):
    """Policy gradient with one clipped importance weight per completion; needs a reference."""

    level = "completion"
    needs_reference = True
    importance: Literal["sequence", "none"] = "sequence"
    """sequence: the ratio of the whole answer; none: one for every answer."""
    clip_low: Share = 0.9
    """Largest distance by which the weight may fall below one."""
    clip_high: NonNegativeFloat = 0.9
    """Largest distance by which it may rise above one."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each completion, [completions], nats times advantage.

        Args:
            log_prob: log pi of whole completions, [completions], nats; gradient flows.
            batch: advantages and the reference's log-probs, [tokens] each; a completion's advantage is the mean of
                its tokens'.
        """
        assert batch.reference is not None, "the recipe check makes sure that there is a reference"
        log_ratio = log_prob.detach() - batch.sum_by_completion(batch.reference)
        ratio = torch.exp(log_ratio)
        low, high = (1.0 - self.clip_low, 1.0 + self.clip_high) if self.importance == "sequence" else (1.0, 1.0)
        weight = ratio.clamp(low, high)
        watch = {
            "sequence_log_ratio": log_ratio,
            "sequence_weight": weight,
            "clipped_share": (ratio != weight).to(ratio),
            "likelihood": log_prob.detach(),
        }
        return -batch.mean_by_completion(batch.advantage) * weight * log_prob, watch
