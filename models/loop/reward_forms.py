"""Rewards that are asked for more than values: those made of others before them, those that say why, and those that
a judge gives by the texts alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from models.errors import UserError
from models.judges.judge import GenerativeJudge
from models.loop.rollout import Rollout
from models.loop.slots import Reward
from models.loop.world import World


class Blend(Reward):
    """What a completion is worth by what other rewards of the recipe say of it, most of which then have no weight."""

    slot = "rewards"

    @property
    def made_of(self) -> tuple[str, ...]:
        """Labels of these rewards, which stand before it in the recipe."""
        return ()

    @abstractmethod
    def blend(self, world: World, rollouts: Sequence[Rollout], components: Mapping[str, Tensor]) -> Tensor:
        """Values before weighting, [completions]; `components` holds the rewards before it, [completions] each."""

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """What `blend` says where nothing stands before it."""
        return self.blend(world, rollouts, {})


@dataclass(frozen=True)
class Reasoned:
    """Values of a reward that says why."""

    values: Tensor
    """Before weighting, [completions]; NaN where there is none."""
    reasons: Sequence[str]
    """Why each is worth what it is, [completions]; empty where nobody says."""
    watched: Mapping[str, float] = field(default_factory=dict)
    """What is worth watching beside, such as answers that could not be read; each as `rewards/LABEL/NAME`."""


class ReasonedReward(Reward):
    """What each completion is worth, and why: the reasons stand in the sample tables."""

    slot = "rewards"

    @abstractmethod
    def reasoned(self, world: World, rollouts: Sequence[Rollout]) -> Reasoned:
        """Values and reasons of each completion."""

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """The values, [completions]."""
        return self.reasoned(world, rollouts).values


class JudgedReward(ReasonedReward):
    """What a generative judge says of completions by their texts alone: a jury asks it before any training too."""

    slot = "rewards"
    needs_judge = True

    @abstractmethod
    def judged(self, judge: GenerativeJudge, rollouts: Sequence[Rollout], seed: int) -> Reasoned:
        """Values and reasons of each completion; `seed`: of whatever it draws itself, such as an order."""

    def reasoned(self, world: World, rollouts: Sequence[Rollout]) -> Reasoned:
        """What the recipe's judge says."""
        return self.judged(world.asked_judge(), rollouts, world.seed)


def before(label: str, by: str, components: Mapping[str, Tensor]) -> Tensor:
    """The reward called `by`, [completions], of those that stand before the one called `label` in a recipe.

    Raises:
        UserError: none before it is called so.
    """
    if by not in components:
        raise UserError(f"reward {label}: no reward before it is called {by}; there are {', '.join(components)}")
    return components[by]
