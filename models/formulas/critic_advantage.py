"""What advantages with a learned critic share: the critic beside the policy, its values, its fit, its time alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor, nn

from models.critic.fit import critic_of, fit_critic
from models.critic.model import new_critic, read_values
from models.critic.settings import CriticSettings
from models.loop.episode_parts import rows_of_wholes
from models.loop.learner import Companion
from models.loop.rollout import Scored
from models.loop.signal import Signal
from models.loop.slots import Advantage
from models.loop.world import World


@dataclass(frozen=True)
class ValuedSignal(Signal):
    """A signal that remembers what the critic said."""

    values: Sequence[Tensor] = ()
    """Value before each token when the round began, [completions] tensors of [tokens of it]."""


@dataclass(frozen=True, kw_only=True)
class CriticAdvantage(Advantage):
    """Settings of advantages that a critic is part of. Stand under `advantage:`."""

    learns_from_flat_groups = True
    companion = "critic"
    critic: CriticSettings = field(default_factory=CriticSettings)
    """The value model and its fit."""

    @property
    def critic_pretraining(self) -> int:
        """The critic's own setting."""
        return self.critic.pretraining

    def accompany(self, policy: nn.Module) -> Companion:
        """The critic as it begins: the policy's backbone with a fresh head."""
        return new_critic(policy, self.critic)

    def _values(self, world: World, scored: Scored) -> list[Tensor]:
        """Value before each token as the critic says, [completions] tensors of [tokens of it]."""
        critic = critic_of(world.learner.companions[self.companion])
        values = read_values(critic, scored.sequences, autocast=world.learner.autocast, token_budget=world.token_budget)
        return rows_of_wholes(values, scored.rollouts)

    def _alone(self, world: World) -> bool:
        """Whether the critic still learns alone, and the policy is to stay."""
        return world.learner.companions[self.companion].updates < self.critic.pretraining

    def _fit(
        self, world: World, scored: Scored, signal: Signal, counted: Sequence[Tensor] | None = None
    ) -> dict[str, float]:
        """Fit the critic to the round's returns, at the tokens that are `counted`. Returns what is worth watching."""
        assert isinstance(signal, ValuedSignal) and signal.returns is not None, "the signal is this part's own"
        return fit_critic(
            world.learner.companions[self.companion],
            scored,
            signal.returns,
            signal.values,
            counted=counted,
            autocast=world.learner.autocast,
            token_budget=world.token_budget,
        )
