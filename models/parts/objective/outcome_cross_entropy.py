"""Reinforcement as supervised learning: predict the outcome of a completion from the policy's own log-ratio.

    implied r_i = beta * log pi(y_i) / anchor(y_i)
    score s_i   = r_i - mean of r_j over j != i          the other completions of the prompt
    loss        = mean_i w_i -[ R_i log sigmoid(s_i) + (1 - R_i) log sigmoid(-s_i) ]
    weight w_i  = G / (2 * completions of the group with the outcome of i)    one where all have the same

Source: PACS (arXiv 2509.02522; paper 263). The anchor is the policy as the round began, so that all scores are zero at
a round's first step and later show the change by the earlier steps; the weights make right and wrong count the same
however rare either is. The gradient, derived here, is a policy gradient whose reward is the weighted residual of the
prediction, with the leave-one-out baseline of RLOO (arXiv 2402.14740):

    d loss / d log pi_i = -beta / G * [ w_i (R_i - sigmoid(s_i)) - mean of w_j (R_j - sigmoid(s_j)) over j != i ]

sigmoid(s) is the critic and pi the actor, in one model: an outcome that is predicted already has no gradient. Where the
policy is the anchor all scores are zero, and without weights the gradient is RLOO's. With the recipe's reference as the
anchor the prediction is that of the whole run, and a policy far from it has no gradient at all.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor
from torch.nn import functional

from models.method.objective import Objective
from models.method.registry import part
from models.method.token_batch import TokenBatch


def less_mean_of_others(values: Tensor, batch: TokenBatch) -> Tensor:
    """Return each value less the mean of the others in its group, [completions]; zero for one alone; gradient flows."""
    sizes = batch.of_group(batch.sum_by_group(torch.ones_like(values)))
    return (values - batch.of_group(batch.mean_by_group(values))) * sizes / (sizes - 1.0).clamp(min=1.0)


def balanced_weights(right: Tensor, batch: TokenBatch) -> Tensor:
    """Return weights that give either outcome half of its group's total, [completions]; one if all outcomes are equal.

    Args:
        right: one where a completion is right and zero where it is wrong, [completions].
        batch: its groups.
    """
    sizes = batch.of_group(batch.sum_by_group(torch.ones_like(right)))
    share = batch.of_group(batch.mean_by_group(right))
    same = torch.where(right > 0, share, 1.0 - share)  # share of the group with the same outcome, never zero
    return torch.where(same * sizes < sizes - 0.5, 0.5 / same, torch.ones_like(same))


@part("outcome_cross_entropy")
class OutcomeCrossEntropy(Objective):
    """Cross-entropy per group that predicts each completion's outcome from its log-ratio."""

    level = "group"
    beta: PositiveFloat = 1.0
    """Log-odds of being right that a log-ratio of one nat states."""
    anchor: Literal["round", "reference"] = "round"
    """Denominator of the log-ratio: the policy as the round began, or the recipe's reference."""
    balance: bool = True
    """Whether the right and the wrong completions of a prompt have the same total weight."""

    @property
    def needs_reference(self) -> bool:
        """Whether the reference is the anchor."""
        return self.anchor == "reference"

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the mean cross-entropy of each group, [groups], nats.

        Args:
            log_prob: log pi of whole completions, [completions], nats; gradient flows.
            batch: rewards, the chance of each completion to be right and cut to [0, 1]; groups; log-probs under the
                old policy and the reference, [tokens] each.
        """
        label = batch.reward.clamp(0.0, 1.0)
        anchor = batch.old if self.anchor == "round" else batch.reference
        assert anchor is not None, "the recipe check makes sure that there is a reference"
        score = less_mean_of_others(self.beta * (log_prob - batch.sum_by_completion(anchor)), batch)
        entropy = functional.binary_cross_entropy_with_logits(score, label, reduction="none")
        if self.balance:
            entropy = entropy * balanced_weights((label > 0.5).to(label), batch)
        watch = {
            "outcome_accuracy": batch.mean_by_group(((score > 0) == (label > 0.5)).to(score)),
            "outcome_residual": batch.mean_by_group((label - torch.sigmoid(score)).abs()),
        }
        return batch.mean_by_group(entropy), {name: value.detach() for name, value in watch.items()}
