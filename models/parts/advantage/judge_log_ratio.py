"""On-policy distillation by sampled tokens: the log-ratio of the judge to the policy that wrote the token.

    A_t = sum over s >= t of discount^(s - t) * log(judge(y_s) / pi(y_s))

With discount 0, A_t is minus the one-sample estimate of the reverse KL, and the policy gradient with it is in
expectation that of KL(pi || judge) at each token (Thinking Machines, "On-Policy Distillation", 2025; their
`train_on_policy.py`). Only log-probs of the sampled tokens are read, which a remote teacher provides too. A judge that
is the policy or its reference reads a context that the policy does not see (SDPO's sampled form, arXiv 2601.20802).
"""

from __future__ import annotations

from pydantic import PositiveFloat

from models.base.bounds import Share
from models.method.advantage import Advantage, Signal
from models.method.registry import part
from models.method.resources import RunResources
from models.method.scored import Scored
from models.parts.shared.judged import JudgeDependent
from models.parts.shared.token_advantages import discounted_to_go


@part("judge_log_ratio")
class JudgeLogRatio(JudgeDependent, Advantage):
    """Log-ratio of a judge to the policy at each sampled token. Set under `advantage:`."""

    learns_from_flat_groups = True
    _asks_of_teacher = "log_probs"
    discount: Share = 0.0
    """Discount of the judge's log-ratios at the following tokens; 0: only the token's own counts."""
    weight: PositiveFloat = 1.0
    """Advantage per nat."""

    def __call__(self, resources: RunResources, scored: Scored) -> Signal:
        """Compute advantages token by token."""
        own = resources.readings.policy(scored.rollouts)
        judged = resources.readings.judge(scored.rollouts, self.judge)
        return Signal(
            [
                self.weight * discounted_to_go(there.cpu() - here.cpu(), self.discount)
                for here, there in zip(own, judged, strict=True)
            ]
        )
