"""The slot `advantage`: estimates of how much better than expected each token of a completion was."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from models.learner.packing import PerToken
from models.method.learner import Learner
from models.method.resources import RunResources
from models.method.scored import Scored
from models.method.slot_part import SlotPart


@dataclass(frozen=True)
class Signal:
    """Advantages of a round's tokens, and the critic's targets, [completions] tensors of [tokens of it] each."""

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
    """Base class of advantages: estimates of how much better than expected each token of a completion was."""

    slot = "advantage"

    @property
    def needs_group(self) -> bool:
        """Whether it compares the completions of a group: alone in its group, a completion has advantage zero."""
        return False

    @property
    def least_group(self) -> int:
        """Smallest number of completions per prompt that it can work with."""
        return 2 if self.needs_group else 1

    @property
    def kl_in_reward(self) -> float:
        """Coefficient of a KL penalty in the reward, per nat of KL to the reference; needs a reference unless zero."""
        return 0.0

    @property
    def learns_from_flat_groups(self) -> bool:
        """Whether it can differ from zero if all completions of a prompt have the same reward."""
        return False

    @property
    def needs_token_rewards(self) -> bool:
        """Whether it needs rewards token by token, so that one of the rewards must be a `TokenReward`."""
        return False

    @property
    def remembers(self) -> bool:
        """Whether it keeps rollouts in `Learner.memory`; the source of rollouts may then not use this memory."""
        return False

    @property
    def critic_pretraining(self) -> int:
        """Number of optimiser steps that the critic takes before the policy is trained with it."""
        return 0

    @property
    def trains_policy(self) -> bool:
        """Whether the policy learns; False: only the part's companion does, and the policy keeps its weights."""
        return True

    @property
    def exports(self) -> bool:
        """Whether its companion is part of the result; `export` then writes it."""
        return False

    def export(self, learner: Learner, folder: Path) -> None:
        """Write the companion into the policy's model folder; nothing by default.

        Args:
            learner: as the run ended.
            folder: the policy's, with weights and tokenizer in it already.
        """

    @abstractmethod
    def __call__(self, resources: RunResources, scored: Scored) -> Signal:
        """Compute advantages token by token."""

    def learn(self, resources: RunResources, scored: Scored, signal: Signal, round_number: int) -> dict[str, float]:
        """Train the part's companion, if any, on the round, after the policy's update. Returns its metrics."""
        return {}


class CompletionAdvantage(Advantage):
    """Base class of advantages with one value per completion, repeated at each of its tokens."""

    slot = "advantage"

    @abstractmethod
    def of_completions(self, resources: RunResources, scored: Scored) -> Tensor:
        """Compute the advantage of each completion, [completions]."""

    def __call__(self, resources: RunResources, scored: Scored) -> Signal:
        """Return the completion's advantage at each of its tokens."""
        return Signal.of_completions(self.of_completions(resources, scored), scored.lengths)
