"""Implicit process reward model ("Free Process Rewards without Process Labels"; paper 293).

    r(y) = beta * log pi(y) / ref(y),   loss = -[l log sigmoid(r) + (1 - l) log sigmoid(-r)],   l = 1 if y is right

The policy itself is trained as an outcome reward model, one answer at a time: no pairs are needed. As r is a sum of
log-ratios of tokens, its prefix sums give the contribution of each step of an answer, without labels of steps:

    q_t = beta * sum over s <= t of log pi/ref (y_s),   reward of a step = q_end - q_begin,   sum of all steps = r(y)

Summing pi over all continuations shows that q_t = beta * log E_ref[exp(r / beta) | y_1 .. y_t]: the soft value of r.
"""

from __future__ import annotations

import torch
from pydantic import PositiveFloat
from torch import Tensor
from torch.nn import functional

from models.base.bounds import Number
from models.method.objective import Objective
from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.implied_rewards import implied_of_completions


def verdict_loss(value: Tensor, right: Tensor) -> Tensor:
    """Compute the loss of each completion, [completions], nats.

    Args:
        value: r(y), log-odds of being right, [completions]; gradient flows.
        right: whether each is, [completions], bool.
    """
    return -functional.logsigmoid(torch.where(right, value, -value))


@part("outcome_log_ratio")
class OutcomeLogRatio(Objective):
    """Cross-entropy of the log-ratio against the outcome; needs a reference."""

    level = "completion"
    needs_reference = True
    beta: PositiveFloat = 0.05
    """Log-odds of being right for one nat of log-ratio."""
    by: str = "total"
    """Reward component that is the outcome; `total` is the weighted sum."""
    threshold: Number = 0.5
    """Outcome above which a completion is right."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each completion, [completions], nats.

        Args:
            log_prob: log pi of whole completions, [completions], nats; gradient flows.
            batch: the reference's log-probs, [tokens], and the outcomes, [completions].

        Raises:
            UserError: no reward is called `by`.
        """
        right = batch.worth(self.by) > self.threshold
        value = implied_of_completions(log_prob, batch, self.beta)
        watch = {"outcome_accuracy": ((value > 0) == right).to(value), "outcome_value": value.detach()}
        return verdict_loss(value, right), watch
