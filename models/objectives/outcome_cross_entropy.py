"""Reinforcement as supervised learning: predict the outcome of a completion from the policy's own log-ratio.

    implied r_i = beta * log pi(y_i) / ref(y_i)
    score s_i   = r_i - mean of r_j over j != i          the other completions of the prompt
    loss        = mean_i -[ R_i log sigmoid(s_i) + (1 - R_i) log sigmoid(-s_i) ]

Source: PACS (paper 263). The gradient, derived here, is a policy gradient whose reward is the residual of the
prediction, with the leave-one-out baseline of RLOO (arXiv 2402.14740):

    d loss / d log pi_i = -beta / G * [ (R_i - sigmoid(s_i)) - mean of (R_j - sigmoid(s_j)) over j != i ]

sigmoid(s) is the critic and pi the actor, one in the other: what is predicted already pushes no more. Where the policy
is the reference all scores are zero, and the gradient is RLOO's.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from models.loop.rollout import TokenBatch
from models.objectives.implied_rewards import implied_of_completions
from models.parts import part


def less_mean_of_others(values: Tensor, batch: TokenBatch) -> Tensor:
    """Each value less the mean of the others in its group, [completions]; zero for one alone; gradient flows."""
    sizes = batch.of_group(batch.sum_by_group(torch.ones_like(values)))
    return (values - batch.of_group(batch.mean_by_group(values))) * sizes / (sizes - 1.0).clamp(min=1.0)


@part("objective", "outcome_cross_entropy")
class OutcomeCrossEntropy:
    """One loss a group; needs a reference."""

    level: ClassVar[Literal["group"]] = "group"
    needs_reference: ClassVar[bool] = True
    beta: Annotated[float, Field(gt=0)] = 0.1
    """Log-odds of being right that a log-ratio of one nat states."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean cross-entropy of each group, [groups], nats.

        Args:
            log_prob: log pi of whole completions, [completions], nats; gradient flows.
            batch: rewards, the chance of each completion to be right and cut to [0, 1]; groups; the reference's
                log-probs, [tokens].
        """
        label = batch.rewards().clamp(0.0, 1.0)
        implied = implied_of_completions(log_prob, batch, self.beta)
        score = less_mean_of_others(implied, batch)
        entropy = functional.binary_cross_entropy_with_logits(score, label, reduction="none")
        watch = {
            "outcome_accuracy": batch.mean_by_group(((score > 0) == (label > 0.5)).to(score)),
            "outcome_residual": batch.mean_by_group((label - torch.sigmoid(score)).abs()),
        }
        return batch.mean_by_group(entropy), {name: value.detach() for name, value in watch.items()}
