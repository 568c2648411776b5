"""Imitation and reinforcement in one loss, with a weight that moves from one to the other in a run (CHORD, paper 265).

    loss = (1 - mu) * loss of GRPO        on the tokens that the policy sampled
    loss = mu * weight * -phi * log pi    on the tokens of a demonstration, or of the better answer of a preference
    loss = 0                              on those of its worse answer, which is neither
    phi  = p (1 - p), p = pi(token)       no gradient; 1 where it is switched off

The paper has two forms. CHORD-phi: phi on, mu = 0.1 throughout, which are the defaults here. CHORD-mu: phi off, mu from
0.9 to 0.05 by half a cosine until the share `until` of the run is done, and constant afterwards. phi is the variance of
"this token or another one" under the policy: it leaves out tokens that the policy already knows, and tokens so unlikely
that imitating them would disrupt the policy.
"""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor

from models.base.bounds import Share
from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.objective.grpo import Grpo
from models.parts.shared.origins import of_the_data, to_imitate


@part("chord")
class Chord(Grpo):
    """Loss per token: GRPO on samples, imitation on demonstrations; needs `rollouts: {name: sample_beside_data}`."""

    start: Share = 0.1
    """mu in the first round."""
    end: Share = 0.1
    """mu after its fall, which follows half a cosine."""
    until: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of the run's rounds over which mu falls."""
    token_wise: bool = True
    """Whether the tokens of a demonstration are weighted by phi."""
    demonstration_weight: PositiveFloat = 1.0
    """Weight of a demonstration's token relative to a sampled one. Set to the samples per demonstration, with
    schedule.normalisation: completion, it makes mu weigh the mean loss of the demonstrations against that of the
    samples."""

    def _mu(self, progress: float) -> float:
        """Return weight of imitation when the share `progress` of the run is done."""
        fallen = 0.5 * (1.0 - math.cos(math.pi * min(1.0, progress / self.until)))
        return self.start + (self.end - self.start) * fallen

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each token, [tokens].

        Args:
            log_prob: log pi of each token, [tokens], nats; gradient flows.
            batch: what GRPO reads, and the origins, [completions].
        """
        reinforced, watch = super().__call__(log_prob, batch)
        demonstrated, sampled = to_imitate(batch)[batch.completion], ~of_the_data(batch)[batch.completion]
        chance = torch.exp(log_prob.detach())
        phi = chance * (1.0 - chance) if self.token_wise else torch.ones_like(chance)
        mu = self._mu(batch.progress)
        imitated = -mu * self.demonstration_weight * phi * log_prob
        loss = torch.where(demonstrated, imitated, torch.where(sampled, (1.0 - mu) * reinforced, 0.0))
        watch["imitation"] = torch.full_like(chance, mu)
        watch["demonstrated_share"] = demonstrated.to(chance)
        return loss, watch
