"""Length-desensitised DPO: tokens beyond the length of the shorter answer count less (LD-DPO, arXiv 2409.06411).

    log pi(y) = sum over the first l tokens + tail * sum over the rest,   l = tokens of the shorter answer of the pair

and the reference's likewise; the rest is DPO. DPO's gradient grows with the tokens of an answer, so that the longer
answer of a pair moves more whatever its content. With `tail` 1 it is DPO, with 0 both answers are cut to the same
length.
"""

from __future__ import annotations

import torch
from torch import Tensor

from models.base.bounds import Share
from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.objective.dpo import Dpo


@part("ld_dpo")
class LengthDesensitisedDpo(Dpo):
    """DPO's loss per pair, with weight `tail` for the extra tokens of the longer answer; needs a reference."""

    reads_tokens = True
    tail: Share = 0.5
    """Weight of the tokens beyond the length of the other answer of the pair (alpha)."""

    def _scores(self, log_prob: Tensor, batch: TokenBatch) -> Tensor:
        assert batch.pairs is not None and batch.reference is not None, "objectives over pairs see pairs"
        lengths = batch.lengths
        shared = torch.zeros_like(lengths)
        shared[batch.pairs] = lengths[batch.pairs].amin(-1, keepdim=True).expand(-1, 2)
        first = lengths.cumsum(0) - lengths
        place = torch.arange(len(log_prob), device=lengths.device) - first[batch.completion]
        weight = 1.0 - (1.0 - self.tail) * (place >= shared[batch.completion]).to(log_prob)
        return self.beta * batch.by_pair(weight * (log_prob - batch.reference))
