"""Common base of advantages with a learned critic: the critic next to the policy, its values, fit and pretraining."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from torch import Tensor, nn

from models.learner.packing import PerToken, Sequences
from models.method.advantage import Advantage, Signal
from models.method.episode_parts import rows_of_wholes
from models.method.learner import Companion
from models.method.resources import RunResources
from models.method.rollout import Extra, Rollout
from models.method.scored import Scored
from models.reward_models.critic.fit import critic_of, fit_critic, seen_by
from models.reward_models.critic.model import new_critic, read_values
from models.reward_models.critic.settings import CriticSettings


@dataclass(frozen=True)
class ValuedSignal(Signal):
    """A signal that keeps the critic's values."""

    values: PerToken = ()
    """Value before each token when the round began, [completions] tensors of [tokens of it]."""


def closed(rollout: Rollout) -> Rollout:
    """Return a rollout with its last token repeated: the critic's value before it is that at the rollout's end."""
    ids = (*rollout.completion, rollout.completion[-1])
    return replace(rollout, completion=ids, behaviour_log_probs=None, reference_log_probs=None, trained=None)


@dataclass(frozen=True, kw_only=True)
class CriticAdvantage(Advantage):
    """Settings of advantages with a critic. Set under `advantage:`."""

    learns_from_flat_groups = True
    companion = "critic"
    critic: CriticSettings = field(default_factory=CriticSettings)
    """The value model and its fit."""

    @property
    def critic_pretraining(self) -> int:
        """Pretraining of the critic, from its own settings."""
        return self.critic.pretraining

    @property
    def needs_extra(self) -> Extra | None:
        """The context of a judge, if the critic sees it."""
        return "privileged" if self.critic.sees == "privileged" else None

    def accompany(self, policy: nn.Module) -> Companion:
        """Return the critic as it begins: the policy's backbone with a fresh head."""
        return new_critic(policy, self.critic)

    def _values(self, resources: RunResources, scored: Scored) -> list[Tensor]:
        """Return the critic's value before each token, [completions] tensors of [tokens of it]."""
        critic = critic_of(resources.learner.companions[self.companion])
        return rows_of_wholes(self._read(resources, seen_by(critic, scored)), scored.rollouts)

    def _read(self, resources: RunResources, sequences: Sequences) -> list[Tensor]:
        """Return the critic's value before each token, [sequences] tensors of [tokens of it]."""
        return read_values(
            critic_of(resources.learner.companions[self.companion]),
            sequences,
            autocast=resources.learner.autocast,
            token_budget=resources.token_budget,
        )

    def _alone(self, resources: RunResources) -> bool:
        """Return whether the critic still learns alone, so that the policy must not change."""
        return resources.learner.companions[self.companion].updates < self.critic.pretraining

    def _fit(
        self, resources: RunResources, scored: Scored, signal: Signal, counted: PerToken | None = None
    ) -> dict[str, float]:
        """Fit the critic to the round's returns, at the tokens that are `counted`. Returns its metrics."""
        assert isinstance(signal, ValuedSignal) and signal.returns is not None, "the signal is this part's own"
        return fit_critic(
            resources.learner.companions[self.companion],
            scored,
            signal.returns,
            signal.values,
            counted=counted,
            autocast=resources.learner.autocast,
            token_budget=resources.token_budget,
        )
