"""Distillation of classifier-free guidance, with reinforcement of a second aim (arXiv 2410.06084; paper 149).

    z*   = z(x) + guidance (z(x) - z(c))           logits of the judge after the prompt x, and after the context c
    loss = D(softmax(z*), pi) + reinforcement * loss of GRPO,        token by token

Guidance makes a model follow its prompt more closely: it moves away from what the model would write without the prompt,
or after a negative one, which is the context c of the rollouts. It doubles the cost of generation and makes samples of
a prompt alike. The policy learns to write as the guided model does with its own prompt alone, and the reward of the
second aim, the diversity of a group, keeps its samples apart.
"""

from __future__ import annotations

from pydantic import NonNegativeFloat
from torch import Tensor

from models.base.bounds import Share
from models.method.learner import TargetModel
from models.method.policy_outputs import Divergence
from models.method.registry import part
from models.method.rollout import Extra
from models.method.token_batch import TokenBatch
from models.parts.objective.grpo import Grpo
from models.parts.shared.judged import JudgeDependent


@part("guided_distillation")
class GuidedDistillation(JudgeDependent, Grpo):
    """Divergence from a guided judge, and GRPO; needs rollouts with a context, such as `unprompted`."""

    _asks_of_teacher = "model"
    kl: NonNegativeFloat = 0.0
    judge: TargetModel = "reference"
    """Model that is guided: the reference, the teacher or the policy itself."""
    guidance: NonNegativeFloat = 2.0
    """Strength of the guidance: 0 is the judge itself. The paper's gamma is this plus one."""
    beta: Share = 1.0
    """0: KL(judge || policy), 1: KL(policy || judge), between them the generalised Jensen-Shannon divergence."""
    reinforcement: NonNegativeFloat = 1.0
    """Weight of the loss of GRPO; 0: distillation alone."""

    @property
    def needs_reference(self) -> bool:
        """Whether the reference is the judge, or the KL to it has a weight."""
        return self.judge == "reference" or self.kl > 0

    @property
    def needs_extra(self) -> Extra | None:
        """The context that the judge is moved away from."""
        return "privileged"

    @property
    def divergence(self) -> Divergence | None:
        """Divergence from the guided judge's distribution."""
        return Divergence(beta=self.beta, judge=self.judge, guidance=self.guidance)

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each token, [tokens], nats.

        Args:
            log_prob: log pi of each token, [tokens], nats; gradient flows.
            batch: what GRPO reads, and the divergence at each token, [tokens], nats; gradient flows.
        """
        assert batch.divergence is not None, "the fit computes what the objective asks for"
        reinforced, watch = super().__call__(log_prob, batch)
        watch["divergence"] = batch.divergence.detach()
        return batch.divergence + self.reinforcement * reinforced, watch
