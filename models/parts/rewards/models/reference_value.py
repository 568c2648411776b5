"""Value of the reference at a prompt, to be subtracted from the reward (A-LoL; paper 94): V_ref(x), learned online.

    V(x) = w . h(x) + b,   h(x): the reference's own state at the last token of the prompt
    loss = mean of (V(x) - r(x, y))^2 over the round's completions

With weight -1 the sum of the rewards becomes the advantage r - V_ref(x): positive for completions that are better than
the reference's average. The squared error is smallest at the mean reward of a prompt's completions. If these are the
data that the reference was fitted to, as in offline methods after a warm start, this mean is the value of the
reference. Only a linear head is trained; it starts at zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from pydantic import NonNegativeFloat
from torch import Tensor, nn

from models.base.bounds import Number, Positive
from models.learner.optimiser import OptimiserSettings, build_optimiser
from models.learner.packing import Sequences
from models.method.learner import Companion
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward, before
from models.method.rollout import Rollout, sequences_of
from models.method.states import flat_head, reference_states


@part("reference_value")
class ReferenceValue(Reward):
    """Expected reward at the prompt; needs a reference. Comes after the reward that it predicts."""

    reads_learner = True

    needs_reference = True
    companion = "reference_value"
    weight: Number = -1.0
    """Minus the weight of the reward that it predicts, so that the sum is an advantage."""
    by: str = "exact_answer"
    """Label of the reward that it predicts; it must come before this one in the recipe."""
    passes: Positive = 4
    """Optimiser steps on each round's completions."""
    learning_rate: NonNegativeFloat = 3e-3
    """Learning rate of the head's AdamW, without weight decay."""

    @property
    def _optimiser(self) -> OptimiserSettings:
        return OptimiserSettings(learning_rate=self.learning_rate, warmup_steps=0)

    def accompany(self, policy: nn.Module) -> Companion:
        """Create a linear head for the policy's states, all zero."""
        head = flat_head(policy, 0.0)
        return Companion(head, build_optimiser(head, self._optimiser))

    def learn(
        self, resources: RunResources, rollouts: Sequence[Rollout], components: Mapping[str, Tensor]
    ) -> dict[str, float]:
        """Fit the head to the rewards. Returns its mean squared error before the last step.

        Raises:
            UserError: no reward before this one is called `by`, or the recipe has no reference.
        """
        outcome = before(self.label, self.by, components)
        companion = resources.learner.companions[self.companion]
        states = self._states(resources, rollouts)
        wanted, error = outcome.to(states), 0.0
        for _ in range(self.passes):
            loss = (companion.model(states).squeeze(-1) - wanted).square().mean()
            loss.backward()
            error = float(loss.detach())
            companion.step(self._optimiser, f"rewards.{self.label}")
        return {"squared_error": error}

    @torch.no_grad()
    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return the values of the prompts, [completions], on the CPU."""
        head = resources.learner.companions[self.companion].model
        values: Tensor = head(self._states(resources, rollouts)).squeeze(-1)
        return values.cpu()

    @torch.no_grad()
    def _states(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return the reference's states at the last token of each prompt, [completions, hidden].

        Their dtype is that of the head.
        """
        head = resources.learner.companions[self.companion].model
        # the state that predicts the first token of a completion is that of the prompt's end
        whole = sequences_of(rollouts)
        sequences = Sequences(whole.prompts, [completion[:1] for completion in whole.completions])
        dtype = next(head.parameters()).dtype
        state_of: dict[int, Tensor] = {}
        for cut, states in reference_states(resources, sequences, f"reward {self.label}"):
            state_of.update(zip(cut, states.to(dtype), strict=True))
        return torch.stack([state_of[index] for index in range(len(rollouts))])
