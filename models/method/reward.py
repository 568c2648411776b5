"""The slot `rewards`: the value of each completion, or of each of its tokens.

Besides plain rewards there are those computed from other rewards before them, those that give reasons, and those that a
judge gives from the texts alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field
from torch import Tensor

from models.base.bounds import LARGEST, Number, Positive, Share
from models.base.errors import UserError
from models.method.attempt import Verifying
from models.method.judge import GenerativeJudge
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.method.scored import sum_of_tokens


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Handling of a reward that blocks, fails or returns a value that is not finite. Set under its `limits:`."""

    seconds: Annotated[float, Field(gt=0, le=LARGEST)] = 300.0
    """Time limit of the reward for the completions of one round, seconds."""
    retries: Annotated[int, Field(ge=0, le=100)] = 1
    """Number of further calls in a round in which the reward failed."""
    value: Number = 0.0
    """Value used for a completion that has none after all calls, before weighting; `rewards/LABEL/failures` counts
    these."""
    failed_share: Share = 0.5
    """Share of a round's completions without a value above which the round counts as failed."""
    patience: Positive = 3
    """Number of consecutive failed rounds with which the run stops with an error."""


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, kw_only=True)
class Reward(Verifying):
    """Base class of rewards, which assign a value to each completion, or to each of its tokens."""

    slot = "rewards"
    weight: Number = 1.0
    """Weight of this reward in the sum of all rewards."""
    label: str = ""
    """Name of the component in metrics and sample tables; empty: the name of the part."""
    limits: Limits = DEFAULT_LIMITS
    """Time limit of the reward, and the value used if it fails."""

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", self.name)

    @property
    def needs_reward_model(self) -> bool:
        """Whether it reads the reward model, which the recipe must then fit."""
        return False

    @property
    def needs_steps(self) -> bool:
        """Whether the reward model must be a process reward model, which scores each step."""
        return False

    @property
    def needs_goal(self) -> bool:
        """Whether the reward model must have a goal, the state that good completions reach."""
        return False

    @property
    def principle(self) -> str:
        """Principle of `reward_model.principles` that the reward model is to follow; empty: none is required."""
        return ""

    @property
    def by_token(self) -> bool:
        """Whether it has a value for each token, as a `TokenReward` has."""
        return False

    @property
    def reads_learner(self) -> bool:
        """Whether it reads the learner's models: then all ranks call it; else only the first rank does, for all."""
        return False

    @abstractmethod
    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Compute values before weighting, [completions]. A `UserError` stops the run; `limits` handles the rest."""

    def learn(
        self, resources: RunResources, rollouts: Sequence[Rollout], components: Mapping[str, Tensor]
    ) -> dict[str, float]:
        """Train the companion, if any, on `components`, the rewards before this one by label. Returns its metrics."""
        return {}


class TokenReward(Reward):
    """Base class of rewards with a value for each token of a completion."""

    slot = "rewards"
    by_token = True

    @abstractmethod
    def tokens(self, resources: RunResources, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """Compute values before weighting, [completions] tensors of [tokens of it]."""

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return their sums, [completions]."""
        return sum_of_tokens(self.tokens(resources, rollouts))


class Blend(Reward):
    """Base class of rewards computed from other rewards of the recipe, most of which then have weight zero."""

    slot = "rewards"

    @property
    def made_of(self) -> tuple[str, ...]:
        """Labels of the rewards that it is computed from, which come before it in the recipe."""
        return ()

    @property
    def stands_alone(self) -> bool:
        """Whether it has a meaning without other rewards."""
        return False

    @abstractmethod
    def blend(self, resources: RunResources, rollouts: Sequence[Rollout], components: Mapping[str, Tensor]) -> Tensor:
        """Compute values before weighting, [completions]; `components`: the rewards before it, [completions] each."""

    def watched(self, rollouts: Sequence[Rollout], components: Mapping[str, Tensor]) -> dict[str, float]:
        """Return further metrics, each logged as `rewards/LABEL/NAME`."""
        return {}

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Compute `blend` with no other rewards."""
        return self.blend(resources, rollouts, {})


@dataclass(frozen=True)
class Reasoned:
    """Values of a reward, with the reason for each."""

    values: Tensor
    """Values before weighting, [completions]; NaN if there is none."""
    reasons: Sequence[str]
    """Reason for each value, [completions]; empty if there is none."""
    watched: Mapping[str, float] = field(default_factory=dict)
    """Further metrics, such as a count of unreadable answers, each logged as `rewards/LABEL/NAME`."""


class ReasonedReward(Reward):
    """Base class of rewards that give a reason for each value, which the sample tables show."""

    slot = "rewards"

    @abstractmethod
    def reasoned(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Reasoned:
        """Compute values and reasons of each completion."""

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return the values, [completions]."""
        return self.reasoned(resources, rollouts).values


class JudgedReward(ReasonedReward):
    """Base class of rewards by a generative judge from the texts alone; a jury also uses it before any training."""

    slot = "rewards"
    needs_judge = True

    @abstractmethod
    def judged(self, judge: GenerativeJudge, rollouts: Sequence[Rollout], seed: int) -> Reasoned:
        """Compute the value and reason of each completion; `seed` is for its own random choices, such as an order."""

    def reasoned(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Reasoned:
        """Return the values and reasons of the recipe's judge."""
        return self.judged(resources.required_judge(), rollouts, resources.seed)


def before(label: str, by: str, components: Mapping[str, Tensor]) -> Tensor:
    """Look up the reward called `by`, [completions], among those computed before the reward `label`.

    Raises:
        UserError: none before it has this label.
    """
    if by not in components:
        raise UserError(f"reward {label}: no reward before it is called {by}; there are {', '.join(components)}")
    return components[by]
