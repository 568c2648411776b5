"""The value of a turn by a critic of logged episodes: temporal differences on frozen features (Digi-Q; paper 123).

Episodes of the data, which carry no policy loss, train the critic. Their reward comes from an earlier reward of the
recipe and is given at their last turn. The reward of every completion is then the critic's value of its last turn after
its history. Candidates at logged states are thus compared by their expected outcome, before any of them is played
(rollouts logged_candidates, select best_by_value).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import torch
from pydantic import NonNegativeFloat
from torch import Tensor, nn

from models.base.bounds import Positive, Share
from models.learner.optimiser import OptimiserSettings, build_optimiser
from models.method.episode import Turn
from models.method.learner import Companion
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward, before
from models.method.rollout import Rollout
from models.parts.shared.of_turns import turns_of
from models.reward_models.critic.action_values import ActionValues, fit_action_values, following_turns


@part("action_value")
class ActionValue(Reward):
    """Value of the last turn under a critic of logged turns. The critic learns from the round before it scores."""

    companion = "action_values"
    reads_learner = True
    one_sequence = True
    by: str = "exact_answer"
    """Label of the reward of logged episodes, which must come before this one."""
    gamma: Share = 1.0
    """Discount of a reward one turn later."""
    passes: Positive = 50
    """Optimiser steps per round, each on all logged turns of the round."""
    conservative: NonNegativeFloat = 0.0
    """Weight of the term that keeps the values of the policy's proposals below those of the logged turns (CQL); needs
    candidates."""
    optimiser: OptimiserSettings = field(default_factory=lambda: OptimiserSettings(learning_rate=1e-3, warmup_steps=5))
    """Optimiser of the head."""

    def accompany(self, policy: nn.Module) -> Companion:
        """Create the critic on the features of the initial policy."""
        model = ActionValues(policy)
        return Companion(model, build_optimiser(model, self.optimiser))

    def learn(
        self, resources: RunResources, rollouts: Sequence[Rollout], components: Mapping[str, Tensor]
    ) -> dict[str, float]:
        """Fit the critic to the logged episodes of the round. Returns its metrics.

        Raises:
            UserError: no reward before this one is called `by`.
        """
        outcome = before(self.label, self.by, components)
        logged = [index for index, rollout in enumerate(rollouts) if rollout.source.origin == "demonstration"]
        if not logged:
            return {}
        companion = resources.learner.companions[self.companion]
        turns = [(rollouts[index], turn) for index in logged for turn in turns_of(rollouts[index])]
        following = following_turns([len(turns_of(rollouts[index])) for index in logged])
        rewards = torch.zeros(len(turns))
        rewards[following < 0] = outcome[logged].float()
        features = self._features(resources, turns)
        return fit_action_values(
            companion,
            features,
            rewards,
            following.to(features.device),
            gamma=self.gamma,
            passes=self.passes,
            optimiser=self.optimiser,
            setting=f"rewards.{self.label}.optimiser",
            proposals=self._proposals(resources, rollouts, len(turns)) if self.conservative else None,
            conservative=self.conservative,
        )

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return the value of each completion's last turn, [completions]."""
        model = self._model(resources)
        with torch.no_grad():
            return model.values(
                self._features(resources, [(rollout, turns_of(rollout)[-1]) for rollout in rollouts])
            ).cpu()

    def _proposals(self, resources: RunResources, rollouts: Sequence[Rollout], states: int) -> Tensor | None:
        """Return features of the turns proposed at the logged states, in their order, [states, N, hidden]."""
        proposed = [
            (rollout, turns_of(rollout)[-1]) for rollout in rollouts if rollout.source.origin != "demonstration"
        ]
        return self._features(resources, proposed).unflatten(0, (states, -1)) if proposed else None

    def _features(self, resources: RunResources, turns: Sequence[tuple[Rollout, Turn]]) -> Tensor:
        histories = [(*rollout.problem.tokens, *rollout.completion[: turn.start]) for rollout, turn in turns]
        turn_tokens = [rollout.completion[turn.start : turn.stop] for rollout, turn in turns]
        return self._model(resources).features(histories, turn_tokens, resources.token_budget)

    def _model(self, resources: RunResources) -> ActionValues:
        model = resources.learner.companions[self.companion].model
        assert isinstance(model, ActionValues), "the companion is this part's own"
        return model
