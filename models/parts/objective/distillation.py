"""Distillation by whole distributions: the policy is drawn to a judge's at every token of its completions.

    loss = D(judge(. | before), pi(. | before)),   token by token

D is forward KL (beta 0), reverse KL (beta 1) or the generalised Jensen-Shannon divergence between them (GKD, Agarwal et
al. 2023, arXiv 2306.13649). The judge is

    teacher      a frozen model of the recipe (GKD; on-policy distillation with whole distributions) reference    the
    reference, which reads more than the policy: the answer, or a right completion of the group (on-policy
    self-distillation, OPSD, arXiv 2601.18734; SDPO, arXiv 2601.20802, whose reference moves) policy       the current
    policy, which reads more

No gradient flows to the judge, and none through the sampling of the completions, as in GKD and SDPO.
"""

from __future__ import annotations

from torch import Tensor

from models.base.bounds import Share
from models.method.objective import Objective
from models.method.policy_outputs import Divergence
from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.judged import JudgeDependent


@part("distillation")
class Distillation(JudgeDependent, Objective):
    """Divergence from a judge's whole distribution, token by token."""

    level = "token"
    _asks_of_teacher = "model"
    beta: Share = 0.5
    """0: KL(judge || policy), which covers all that the judge would write; 1: KL(policy || judge), which keeps to the
    texts that the judge finds likely; between them the generalised Jensen-Shannon divergence."""

    @property
    def divergence(self) -> Divergence | None:
        """Divergence from the judge's distribution."""
        return Divergence(beta=self.beta, judge=self.judge)

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each token, [tokens], nats.

        Args:
            log_prob: log pi of each token, [tokens], nats; not read.
            batch: the divergence at each token, [tokens], nats; gradient flows.
        """
        assert batch.divergence is not None, "the fit computes what the objective asks for"
        return batch.divergence, {"divergence": batch.divergence.detach()}
