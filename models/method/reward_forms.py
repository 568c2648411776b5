"""Rewards with more inputs or outputs than values: those computed from other rewards before them, those that give
reasons, and those that a judge gives from the texts alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from models.base.errors import UserError
from models.method.judge import GenerativeJudge
from models.method.rollout import Rollout
from models.method.slots import Reward
from models.method.world import World


class Blend(Reward):
    """A reward computed from other rewards of the recipe, most of which then have no weight."""

    slot = "rewards"

    @property
    def made_of(self) -> tuple[str, ...]:
        """Labels of these rewards, which come before it in the recipe."""
        return ()

    @abstractmethod
    def blend(self, world: World, rollouts: Sequence[Rollout], components: Mapping[str, Tensor]) -> Tensor:
        """Compute values before weighting, [completions]; `components`: the rewards before it, [completions] each."""

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """Compute `blend` without rewards before it."""
        return self.blend(world, rollouts, {})


@dataclass(frozen=True)
class Reasoned:
    """Values of a reward that gives reasons."""

    values: Tensor
    """Values before weighting, [completions]; NaN if there is none."""
    reasons: Sequence[str]
    """Reason for each value, [completions]; empty if there is none."""
    watched: Mapping[str, float] = field(default_factory=dict)
    """Further metrics, such as answers that could not be read; each as `rewards/LABEL/NAME`."""


class ReasonedReward(Reward):
    """A reward of each completion with its reason; the reasons are shown in the sample tables."""

    slot = "rewards"

    @abstractmethod
    def reasoned(self, world: World, rollouts: Sequence[Rollout]) -> Reasoned:
        """Compute values and reasons of each completion."""

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """Return the values, [completions]."""
        return self.reasoned(world, rollouts).values


class JudgedReward(ReasonedReward):
    """A generative judge's reward of completions by their texts alone; a jury also uses it before any training."""

    slot = "rewards"
    needs_judge = True

    @abstractmethod
    def judged(self, judge: GenerativeJudge, rollouts: Sequence[Rollout], seed: int) -> Reasoned:
        """Compute values and reasons of each completion; `seed`: of any draws of its own, such as an order."""

    def reasoned(self, world: World, rollouts: Sequence[Rollout]) -> Reasoned:
        """Return the values and reasons of the recipe's judge."""
        return self.judged(world.asked_judge(), rollouts, world.seed)


def before(label: str, by: str, components: Mapping[str, Tensor]) -> Tensor:
    """Return the reward called `by`, [completions], of those that come before the one called `label` in a recipe.

    Raises:
        UserError: none before it has this label.
    """
    if by not in components:
        raise UserError(f"reward {label}: no reward before it is called {by}; there are {', '.join(components)}")
    return components[by]
