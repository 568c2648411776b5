"""Values of texts under a frozen policy, fitted to its own samples (Value Augmented Sampling, arXiv 2405.06639; 166).

    V(text) = E[R | a completion of the policy begins with the text]          risk 0, as in the paper
    V(text) = log E[exp(risk * R)] / risk                                     risk above 0
    target before token t:  G_t = V_t + sum over u >= t of gae_lambda^(u - t) * (V_u+1 - V_u),   V after the end: R

The policy does not learn: samples of the initial policy are all that is needed. The critic is that of the other
advantages, and its fit too; it also learns the value after the last token, because decoding compares the end of a text
with its continuations. The finished value model is written into the policy's model folder as `values/`, where the
strategy `value_guided` reads it. To use several rewards, fit one model for each (`by`).

With risk above 0 the critic estimates the mean of exp(risk * R), and decoding with beta = risk gives the optimum of the
reward with a KL penalty of 1 / risk, if the critic is exact. R is then best limited to a few units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from models.base.bounds import Share
from models.base.errors import UserError
from models.method.advantage import Signal
from models.method.learner import Learner
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.method.scored import Scored
from models.parts.advantage.gae import generalised_advantages
from models.parts.shared.critic_advantage import CriticAdvantage, ValuedSignal, closed
from models.policies.value_model import VALUES, ValueReading, save_value_model
from models.reward_models.critic.fit import critic_of
from models.reward_models.critic.losses import bin_edges
from models.reward_models.critic.model import Critic


@part("sampled_values")
class SampledValues(CriticAdvantage):
    """Values of the frozen policy's texts; only the value model learns."""

    one_sequence = True
    trains_policy = False
    exports = True
    by: str = "total"
    """Label of the reward whose values are learned; total: the weighted sum of all."""
    risk: Annotated[float, Field(ge=0, le=100)] = 0.0
    """0: values are expected rewards. Above 0: they are log-means of exp(risk * reward), divided by risk."""
    gae_lambda: Share = 1.0
    """Lambda of the target: 1 is the reward itself, 0 the value after the next token."""

    def __call__(self, resources: RunResources, scored: Scored) -> Signal:
        """Return zeros: the policy does not learn."""
        return Signal([torch.zeros(len(rollout.completion)) for rollout in scored.rollouts])

    def learn(self, resources: RunResources, scored: Scored, signal: Signal, round_number: int) -> dict[str, float]:
        """Fit the value model to the round's samples. Returns metrics of the fit."""
        rewards = scored.component(self.by, "advantage.by").double()
        targets = (self.risk * rewards).exp() if self.risk else rewards
        rollouts = [closed(rollout) for rollout in scored.rollouts]
        chosen = replace(scored, rollouts=rollouts, token_rewards=None, reasons={})
        values = self._read(resources, chosen.sequences)
        fitted = ValuedSignal(signal.tokens, returns_of(targets, values, self.gae_lambda), values)
        counted = [states_after_written(rollout) for rollout in scored.rollouts]
        return self._fit(resources, chosen, fitted, counted)

    def export(self, learner: Learner, folder: Path) -> None:
        """Write the value model into the policy's model folder.

        Raises:
            UserError: the model is split over several learners.
        """
        if learner.ranks.count > 1:
            raise UserError("advantage sampled_values: the value model of several learners is not written; use one")
        critic = critic_of(learner.companions[self.companion])
        save_value_model(critic.backbone, critic.head, reading_of(critic, self.risk), folder / VALUES)


def states_after_written(rollout: Rollout) -> Tensor:
    """Mark the states of a closed rollout whose value is learned, [tokens + 1], bool.

    These are the state after the prompt, and those after each token that the policy wrote.
    """
    return torch.tensor([True, *rollout.written])


def returns_of(targets: Tensor, values: Sequence[Tensor], gae_lambda: float) -> list[Tensor]:
    """Compute the critic's targets, [completions] tensors of [tokens + 1], in the precision of the values.

    Args:
        targets: value of each whole completion, [completions].
        values: the critic's values at all states of the closed completions, [completions] tensors of [tokens + 1].
        gae_lambda: see `SampledValues`.
    """
    paid = [
        torch.cat([torch.zeros(len(row) - 1), target[None].cpu()]) for row, target in zip(values, targets, strict=True)
    ]
    steps = generalised_advantages(paid, values, 1.0, gae_lambda)
    return [step + value for step, value in zip(steps, values, strict=True)]


def reading_of(critic: Critic, risk: float) -> ValueReading:
    """Return how the critic's outputs become a value."""
    settings = critic.settings
    if settings.loss == "mse":
        return ValueReading(risk=risk)
    edges = bin_edges(settings.low, settings.high, settings.bins, torch.zeros((), dtype=torch.float64))
    return ValueReading(tuple(((edges[1:] + edges[:-1]) / 2).tolist()), risk)
