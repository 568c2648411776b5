"""A gate that chooses the writer of each token learns from the same advantage as the policy (STG; paper 12).

    g_t  = sigmoid(w . h_t + b),   h_t: the reference's state that predicts token t
    loss = mean over the round's tokens of -A_t * log p(z_t),   p(1) = g_t, p(0) = 1 - g_t

"Selective Token Generation for Few-shot Natural Language Generation" lets a selector choose at every token between a
frozen model and its trained adapter, and trains both by the policy gradient. The rollouts `gated` make the choices z_t;
here they are rewarded. A is the group-relative advantage of the completion, the same at each of its tokens. It is used
for the writer's words (the objective) and for the choice of the writer (this loss).

Derived, not the paper's: the baseline is the group's mean; the selector is one linear head, which begins with the same
chance at every token; beyond one pass a round its loss is not corrected for its initial chance.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import Field, NonNegativeFloat
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from models.base.bounds import Positive
from models.base.errors import UserError
from models.learner.optimiser import OptimiserSettings, build_optimiser
from models.learner.packing import Sequences
from models.method.advantage import CompletionAdvantage, Signal
from models.method.learner import Companion
from models.method.registry import part
from models.method.resources import RunResources
from models.method.scored import Scored
from models.method.states import flat_head, reference_states
from models.parts.advantage.group_relative import GroupRelative
from models.parts.shared.kl_in_reward import KlInReward

CERTAIN = 40.0
"""A log-odds whose sigmoid is exactly 1 in every precision, float64 included."""


@part("selective")
class Selective(KlInReward, CompletionAdvantage):
    """Group-relative advantage, with a gate that learns which tokens the policy writes. Used with rollouts `gated`."""

    needs_group = True
    needs_reference = True
    needs_extra = "choices"
    companion = "gate"

    scale: Literal["group", "none"] = "group"
    """group: divide by the group's standard deviation; none: leave the units of the reward."""
    epsilon: NonNegativeFloat = 1e-4
    """Added to the deviation; keeps the division finite in a group that hardly spreads."""
    share: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of the tokens that the policy writes at first; 1: it always writes all of them, no gate is learned."""
    passes: Positive = 1
    """Optimiser steps of the gate on each round's completions."""
    learning_rate: NonNegativeFloat = 1e-3
    """Step size of the gate's AdamW, without any decay."""

    @property
    def _optimiser(self) -> OptimiserSettings:
        return OptimiserSettings(learning_rate=self.learning_rate, warmup_steps=0)

    def accompany(self, policy: nn.Module) -> Companion:
        """Build a linear head from states to the log-odds that the policy writes; it begins at `share` everywhere."""
        head = flat_head(policy, CERTAIN if self.share == 1.0 else math.log(self.share / (1.0 - self.share)))
        return Companion(head, build_optimiser(head, self._optimiser))

    def of_completions(self, resources: RunResources, scored: Scored) -> Tensor:
        """Compute advantages, [completions].

        Raises:
            UserError: the rollouts carry no choices between policy and reference.
        """
        _choices(scored)  # raise the error before the policy has learned from the round, not after
        relative = GroupRelative(scale=self.scale, epsilon=self.epsilon, kl_in_reward=self.kl_in_reward)
        return relative.of_completions(resources, scored)

    def learn(self, resources: RunResources, scored: Scored, signal: Signal, round_number: int) -> dict[str, float]:
        """Fit the gate to the round's choices. Returns its mean chance of the policy and its loss at the last step.

        Raises:
            UserError: the rollouts carry no choices between policy and reference; the recipe has no reference.
        """
        if self.share == 1.0:
            return {"chance": 1.0, "loss": 0.0}
        companion = resources.learner.companions[self.companion]
        chosen = _choices(scored)
        tokens = int(scored.lengths.sum())
        chance = total = 0.0
        for _ in range(self.passes):
            chance, total = self._backward(resources, scored.sequences, chosen, signal, tokens)
            companion.step(self._optimiser, "advantage")
        return {"chance": chance, "loss": total}

    def _backward(
        self, resources: RunResources, sequences: Sequences, chosen: list[Tensor], signal: Signal, tokens: int
    ) -> tuple[float, float]:
        """Accumulate the gate's gradient over all `tokens` of the round. Returns its mean chance and its loss."""
        head = resources.learner.companions[self.companion].model
        dtype = next(head.parameters()).dtype
        chance = total = 0.0
        # computed again in each pass: the states of a whole round need not fit in memory
        for cut, states in reference_states(resources, sequences, "advantage selective"):
            odds = head(states.to(dtype)).squeeze(-1)
            advantage = torch.cat([signal.tokens[index] for index in cut]).to(odds)
            choice = torch.cat([chosen[index] for index in cut]).to(odds)
            # cross-entropy of a choice with its log-odds is minus the choice's log-probability
            losses = advantage * binary_cross_entropy_with_logits(odds, choice, reduction="none")
            loss = losses.sum() / tokens
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
            chance += float(odds.detach().sigmoid().sum()) / tokens
        return chance, total


def _choices(scored: Scored) -> list[Tensor]:
    """Return a mask of the tokens that the policy wrote, [completions] tensors of [tokens of it], bool."""
    chosen = [rollout.trained for rollout in scored.rollouts if rollout.trained is not None]
    if len(chosen) != len(scored.rollouts):
        raise UserError(
            "advantage selective learns from choices between policy and reference, but the rollouts made none; "
            "set `rollouts: {name: gated}`"
        )
    return [torch.tensor(flags) for flags in chosen]
