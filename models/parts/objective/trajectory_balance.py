"""Trajectory balance: sample completions in proportion to their reward, instead of the best one alone.

    target      p*(y) = p0(y)^prior exp(r(y) / beta) / Z(x)
    residual    d_i = log Z + log pi(y_i) - prior log p0(y_i) - r_i / beta
    loss        = mean of d_i^2 over the group

Source: Flow of Reasoning (paper 304), which trains a language model as a GFlowNet. A completion can be generated in one
way only, token by token, so the backward flow is one and trajectory balance (Malkin et al. 2022) has no more terms than
these. log Z of each prompt is not learned but estimated as the group's mean of -(log pi - log target), which makes the
loss the variance of that log-ratio over the group (VarGrad, Richter et al. 2020).

The loss is zero for every group, of any sampler, exactly where the policy is the target: so completions of earlier
rounds serve as well as fresh ones, without importance weights. On fresh ones half its gradient is, by (G - 1) / G, that
of KL(pi || p*). With prior = 0 the reward alone decides, as in the paper; with prior = 1 it decides among texts that
the reference would write, which language needs, because most sequences of tokens are not language.
"""

from __future__ import annotations

from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor

from models.method.objective import Objective
from models.method.registry import part
from models.method.token_batch import TokenBatch


@part("trajectory_balance")
class TrajectoryBalance(Objective):
    """Mean squared residual of trajectory balance per group; needs a reference, the prior."""

    level = "group"
    needs_reference = True
    beta: PositiveFloat = 0.1
    """Units of reward that make a completion e times likelier."""
    prior: NonNegativeFloat = 1.0
    """Exponent of the reference in the target; with 0 the target depends on the reward alone."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the mean squared residual of each group, [groups], nats squared.

        Args:
            log_prob: log pi of whole completions, [completions], nats; gradient flows.
            batch: rewards, groups and the reference's log-probs, [tokens].
        """
        assert batch.reference is not None, "the recipe check makes sure that there is a reference"
        target = self.prior * batch.sum_by_completion(batch.reference) + batch.reward / self.beta
        apart = log_prob - target
        log_z = -batch.mean_by_group(apart)
        loss = batch.mean_by_group((apart + batch.of_group(log_z)) ** 2)
        watch = {"log_normaliser": log_z, "imbalance": loss.sqrt()}
        return loss, {name: value.detach() for name, value in watch.items()}
