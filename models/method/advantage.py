"""The slot `advantage`: how much better than expected each token of a completion was."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from torch import Tensor

from models.learner.packing import PerToken
from models.method.scored import Scored
from models.method.slot_part import SlotPart
from models.method.world import World


@dataclass(frozen=True)
class Signal:
    """How much better than expected, token by token, [completions] tensors of [tokens of it] each."""

    tokens: PerToken
    """Advantage of each token."""
    returns: PerToken | None = None
    """Target of the critic at each token."""

    @staticmethod
    def of_completions(values: Tensor, lengths: Tensor) -> Signal:
        """Repeat a completion's value at each of its tokens.

        Args:
            values: one a completion, [completions].
            lengths: tokens of each, [completions], int64.
        """
        return Signal(values.repeat_interleave(lengths).split(lengths.tolist()))


class Advantage(SlotPart):
    """How much better than expected each token of a completion was."""

    slot = "advantage"

    @property
    def needs_group(self) -> bool:
        """Whether the signal of a group of one is zero."""
        return False

    @property
    def least_group(self) -> int:
        """Least number of completions of a prompt that it needs."""
        return 2 if self.needs_group else 1

    @property
    def kl_in_reward(self) -> float:
        """Reduction of the reward per nat of the KL to the reference; needs a reference unless it is zero."""
        return 0.0

    @property
    def learns_from_flat_groups(self) -> bool:
        """Whether it is not zero for the completions of a prompt that all have the same reward."""
        return False

    @property
    def needs_token_rewards(self) -> bool:
        """Whether it reads rewards token by token, which some reward must give."""
        return False

    @property
    def remembers(self) -> bool:
        """Whether it keeps rollouts in the learner's memory, which the source then may not use."""
        return False

    @property
    def critic_pretraining(self) -> int:
        """Optimiser steps of the critic before the policy is trained with it."""
        return 0

    @abstractmethod
    def __call__(self, world: World, scored: Scored) -> Signal:
        """Compute advantages token by token."""

    def learn(self, world: World, scored: Scored, signal: Signal, round_number: int) -> dict[str, float]:
        """Fit the companion, if any, to the round, after the policy's fit. Returns its metrics."""
        return {}


class CompletionAdvantage(Advantage):
    """How much better than expected a completion was, the same at each of its tokens."""

    slot = "advantage"

    @abstractmethod
    def of_completions(self, world: World, scored: Scored) -> Tensor:
        """Compute advantages, [completions]."""

    def __call__(self, world: World, scored: Scored) -> Signal:
        """Return the completion's advantage at each of its tokens."""
        return Signal.of_completions(self.of_completions(world, scored), scored.lengths)
