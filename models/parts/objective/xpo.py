"""Exploratory preference optimisation: online DPO with optimism about untried answers (paper 64, "XPO").

    loss = -log sigmoid(margin) + alpha * log pi(explored),   margin as in DPO (arXiv 2305.18290)

`explored` is the completion of the pair that the sampling policy drew, in the paper the reference. Lowering its
log-prob moves mass to answers that the reference does not give. Under DPO's implied reward, r = beta log pi/ref, this
is the belief that unseen answers are worth more: log pi(ref's answers) falls as the value of the whole policy rises.

The mean gradient of the term over `explored` drawn from a distribution mu is alpha * (mu - pi) in the logits of a
softmax: on completions of the policy itself it vanishes, so at least one of the pair should come from the reference
(`rollouts: {name: sample_beside_reference}`). If neither or both do, both count half, which is the mean over the choice
of the explored one among two equal draws. Derived from the formula that is known of the paper, from memory.

The paper's term counts every completion of the reference. Here it is part of the loss of a pair, and completions of
equal reward make no pair (`select: best_worst` leaves them out): if both are worth the same, the reference's answer is
not lowered. So the mean above is over the reference's draws given that the two differ in worth. A reward that seldom
ties, such as a verifier's plus a reward model's, loses little; a verifier alone loses most if all are right or wrong.
"""

from __future__ import annotations

import torch
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor
from torch.nn import functional

from models.method.objective import Objective
from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.implied_rewards import implied_of_pairs, watch_pairs


@part("xpo")
class Xpo(Objective):
    """DPO's loss per pair plus the weighted log-prob of the explored completion; needs a reference."""

    level = "pair"
    needs_reference = True
    beta: PositiveFloat = 0.1
    """Strength of the pull to the reference, as in DPO."""
    alpha: NonNegativeFloat = 0.001
    """Weight of the optimism, far below beta: the log-prob of a whole completion has no lower bound. Zero is DPO."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each pair, [pairs], nats.

        Args:
            log_prob: log pi of the better and the worse completion, [pairs, 2], nats; gradient flows.
            batch: the reference's log-probs, [tokens], and where the completions come from.
        """
        implied = implied_of_pairs(log_prob, batch, self.beta)
        explored = (explored_share(batch).to(log_prob) * log_prob).sum(-1)
        loss = -functional.logsigmoid(implied[:, 0] - implied[:, 1]) + self.alpha * explored
        return loss, {**watch_pairs(implied), "explored_log_prob": explored.detach()}


def explored_share(batch: TokenBatch) -> Tensor:
    """Return the weight of each completion of a pair as the explored one, [pairs, 2]; the two add up to one."""
    assert batch.pairs is not None, "objectives over pairs see pairs"
    drawn = batch.from_origins("reference")[batch.pairs].double()
    count = drawn.sum(-1, keepdim=True)
    return torch.where(count > 0, drawn / count.clamp(min=1), 0.5)
