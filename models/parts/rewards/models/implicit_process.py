"""Token rewards of an implicit process reward model that learns online from outcomes alone (PRIME, paper 163).

Source: PRIME (arXiv 2502.01456; paper 163).

    r_t = beta * log phi(y_t) / ref(y_t)           phi: a language model that begins as the policy
    loss of phi = cross-entropy of sigmoid(sum of r_t) against the outcome of y

phi is an implicit process reward model (models.parts.objective.outcome_log_ratio; paper 293). Each round it first
learns from the verdicts on the round's own completions and then scores them, so it adapts to the policy and cannot be
exploited for long. It needs no labelled steps and no reward model that is fitted beforehand. ref is the recipe's
reference: with `reference: frozen`, the policy as it began.

The model keeps learning, so its log-ratios grow without bound while an outcome stays 0 or 1, and would soon dominate.
The published code therefore divides them (`prime_norm: batch_norm`, its default) by the largest absolute reward-to-go
of the round, so that process and outcome rewards keep the same scale.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat
from torch import Tensor, nn

from models.base.bounds import Number, Positive
from models.base.errors import UserError
from models.learner.log_probs import completion_log_probs
from models.learner.optimiser import OptimiserSettings, build_optimiser
from models.learner.packing import PerToken
from models.learner.rows import rows_of
from models.learner.whole_weights import ranks_of
from models.method.episode_parts import episodes_together, owners_of, sums_of_row
from models.method.learner import Companion
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import TokenReward, before
from models.method.rollout import Rollout, parts_of, sequences_of, written_places
from models.method.schedule import BUDGET_KEY
from models.parts.objective.outcome_log_ratio import verdict_loss
from models.parts.shared.implied_rewards import implied_of_tokens


@part("implicit_process")
class ImplicitProcess(TokenReward):
    """Log-ratios of a model that learns together with the policy; needs a reference and an earlier outcome reward."""

    reads_learner = True

    needs_reference = True
    companion = "process_reward"
    by: str = "exact_answer"
    """Label of the reward that is the outcome; it must come before this one in the recipe."""
    threshold: Number = 0.5
    """A completion is right if its outcome is above this value."""
    beta: PositiveFloat = 0.05
    """Reward of one nat of log-ratio; the model's loss uses it too."""
    normalise: Literal["none", "round"] = "none"
    """round: scale the rewards so that the largest absolute reward-to-go of the round's completions is 1."""
    passes: Positive = 1
    """Optimiser steps on each round's completions."""
    learning_rate: NonNegativeFloat = 1e-4
    """Learning rate of the model's AdamW, without weight decay."""
    warmup_steps: NonNegativeInt = 5
    """Steps over which the learning rate rises linearly from zero."""

    @property
    def _optimiser(self) -> OptimiserSettings:
        return OptimiserSettings(learning_rate=self.learning_rate, warmup_steps=self.warmup_steps)

    def accompany(self, policy: nn.Module) -> Companion:
        """Copy the policy. All token rewards are zero at first if the reference is that policy."""
        judge = copy.deepcopy(policy).requires_grad_(True).eval()
        return Companion(judge, build_optimiser(judge, self._optimiser))

    def learn(
        self, resources: RunResources, rollouts: Sequence[Rollout], components: Mapping[str, Tensor]
    ) -> dict[str, float]:
        """Fit the model to the outcomes. Returns loss and accuracy before the last step, means over completions.

        Raises:
            UserError: no reward before this one is called `by`, or the recipe has no reference.
        """
        right = before(self.label, self.by, components) > self.threshold
        learner = resources.learner
        companion = learner.companions[self.companion]
        judge, sequences = companion.model, sequences_of(rollouts)
        parts, owners = parts_of(rollouts), owners_of(rollouts)
        reference = torch.stack([row.sum() for row in self._reference(resources, rollouts)])
        metrics: dict[str, float] = {}
        for _ in range(self.passes):
            loss_sum, correct = 0.0, 0
            for row in rows_of(
                judge,
                sequences,
                resources.token_budget,
                together=episodes_together(rollouts),
                setting=BUDGET_KEY,
            ):
                some = [parts[place] for place in row.indices]
                log_prob, _ = completion_log_probs(
                    judge,
                    row.sequences,
                    distribution=learner.distribution,
                    autocast=learner.autocast,
                    kept=written_places(some),
                )
                rows = log_prob.split([made.written_tokens for made in some])
                wholes, sums = sums_of_row([values.sum() for values in rows], row.indices, owners)
                value = self.beta * (sums - reference[wholes].to(sums))
                truth = right[wholes].to(value.device)
                loss = verdict_loss(value, truth).sum() / len(rollouts)
                row.backward(loss)
                loss_sum += row.counts * float(loss.detach())
                correct += row.counts * int(((value > 0) == truth).sum())
            seen = ranks_of(judge).sums({"loss": loss_sum, "accuracy": correct / len(rollouts)})
            norm = companion.step(self._optimiser, f"rewards.{self.label}")
            metrics = {**seen, "gradient_norm": norm}
        return metrics

    def tokens(self, resources: RunResources, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """Return the reward of each token, [completions] tensors of [tokens of it], on the CPU.

        Unless they are normalised, they add up to r(y).
        """
        judge = resources.learner.companions[self.companion].model
        judged = resources.readings.under(judge, sequences_of(rollouts), rollouts)
        reference = self._reference(resources, rollouts)
        rows = [implied_of_tokens(new, old, self.beta).cpu() for new, old in zip(judged, reference, strict=True)]
        return rows if self.normalise == "none" else within_one(rows)

    def _reference(self, resources: RunResources, rollouts: Sequence[Rollout]) -> list[Tensor]:
        rows = resources.readings.reference(rollouts)
        if rows is None:
            raise UserError(f"reward {self.label} needs a reference, but the recipe has none")
        return rows


def within_one(rows: PerToken) -> list[Tensor]:
    """Divide `rows` by the largest absolute reward-to-go at any token, [completions] tensors of [tokens]."""
    largest = max(float(row.flip(0).cumsum(0).abs().max()) for row in rows)
    return [row / largest if largest > 0 else row for row in rows]
