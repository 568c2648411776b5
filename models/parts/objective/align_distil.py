"""AlignDistil (Zhang et al. 2025, arXiv 2503.02832; paper 319): alignment as distillation from an extrapolated teacher.

    z*    = z_dpo + alpha (z_dpo - z_reverse)                 a teacher for each token
    alpha = extrapolation * sum over the vocabulary of |p_dpo - p_reverse| + 0.001
    loss  = beta / alpha * KL(pi || softmax(z*)),             token by token

The teacher was fitted to preferences (DPO), its contrast to the same preferences turned around. Reinforcement learning
on the reward that DPO implies is distillation from a sum of logits (the paper's theorem 1); the contrast makes that
reward sharper. If the two models agree there is little to learn and the teacher stays unchanged; if they differ it is
extrapolated further. The formula is that of the authors' code, `aligndistil_trainer.py`.
"""

from __future__ import annotations

from pydantic import PositiveFloat
from torch import Tensor

from models.method.objective import Objective
from models.method.policy_outputs import Divergence, contrast_weight
from models.method.registry import part
from models.method.token_batch import TokenBatch


@part("align_distil")
class AlignDistil(Objective):
    """Reverse KL to a teacher that is moved away from its contrast, token by token."""

    level = "token"
    needs_teacher = "model"
    beta: PositiveFloat = 0.1
    """Weight of the loss where alpha is one: that of DPO's implied reward."""
    extrapolation: PositiveFloat = 15.0
    """Distance by which the teacher's logits move away from the contrast's for a difference of one between the two."""

    @property
    def divergence(self) -> Divergence | None:
        """Reverse KL to the extrapolated teacher."""
        return Divergence(beta=1.0, extrapolation=self.extrapolation)

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each token, [tokens].

        Args:
            log_prob: log pi of each token, [tokens], nats; not read.
            batch: the divergence, [tokens], nats, gradient flows; the gap of teacher and contrast, [tokens].
        """
        assert batch.divergence is not None and batch.contrast_gap is not None, "the fit computes the requested outputs"
        weight = contrast_weight(batch.contrast_gap, self.extrapolation).to(batch.divergence)
        watch = {"divergence": batch.divergence.detach(), "extrapolation": weight}
        return self.beta / weight * batch.divergence, watch
