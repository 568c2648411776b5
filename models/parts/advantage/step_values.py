"""Right answers of a search are imitated, and a critic learns the search's value of every step.

    A_t = 1 if the answer is right, else 0                    loss of the policy = - A_t log pi_t (weighted_likelihood)
    R_t = value from the source before each step              loss of the critic = 1/2 (V_t - R_t)^2, at these tokens

Policy and value model as AlphaMath trains them from the same trees (paper 292, arXiv 2405.03553), right and wrong paths
for the values, right ones alone for the policy; ReST-MCTS* (paper 294) and MedS3 (paper 320) train the two separately
on the same data. From the next round on the critic guides the search if `rollouts.critic_share` is set.
"""

from __future__ import annotations

import torch

from models.base.bounds import Number
from models.method.advantage import Signal
from models.method.registry import part
from models.method.resources import RunResources
from models.method.scored import Scored
from models.parts.shared.critic_advantage import CriticAdvantage, ValuedSignal
from models.reward_models.critic.fit import trained_mask


@part("step_values")
class StepValues(CriticAdvantage):
    """One at tokens of right answers, else zero; a critic is fitted to the values that came with the completions."""

    needs_extra = "step_values"
    one_sequence = True
    by: str = "total"
    """Reward that decides which answers are right."""
    threshold: Number = 0.5
    """Threshold of the reward above which an answer is right."""

    def __call__(self, resources: RunResources, scored: Scored) -> ValuedSignal:
        """Return ones and zeros, [completions] tensors of [tokens of it]; zeros while the critic learns alone.

        Raises:
            UserError: no reward is called `by`.
        """
        right = (scored.component(self.by, "advantage.by") > self.threshold).float()
        if self._alone(resources):
            right = torch.zeros_like(right)
        tokens = [value.expand(len(made.completion)) for value, made in zip(right, scored.rollouts, strict=True)]
        returns = [
            torch.tensor([value or 0.0 for value in made.source.step_values or (None,) * len(made.completion)])
            for made in scored.rollouts
        ]
        return ValuedSignal(tokens, returns, self._values(resources, scored))

    def learn(self, resources: RunResources, scored: Scored, signal: Signal, round_number: int) -> dict[str, float]:
        """Fit the critic at the tokens for which the source has a value. Returns metrics of the fit."""
        counted = [
            trained_mask(made)
            & torch.tensor([value is not None for value in made.source.step_values or (None,) * len(made.completion)])
            for made in scored.rollouts
        ]
        return self._fit(resources, scored, signal, counted)
