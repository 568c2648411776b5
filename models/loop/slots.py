"""The interfaces of the slots. A part is anything that fits; none of them logs, and none knows the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from torch import Tensor, nn

from models.engine.engine import Engine, Sampling
from models.learner.packing import Sequences
from models.loop.rollout import Problem, Rollout, Scored, TokenBatch
from models.text.encoding import Codec


@dataclass(frozen=True)
class World:
    """What parts may need beside their settings: opened once before the loop begins."""

    codec: Codec
    engine: Engine
    score_with_reward_model: Callable[[Sequences], Tensor] | None
    """Scores of prompts with their completions, [completions]; None where no reward model was fitted."""
    seed: int


class Source(Protocol):
    """Where completions come from."""

    group_size: int
    prompts: int

    @property
    def sampling(self) -> Sampling: ...

    def __call__(self, world: World, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Completions of `problems`, those of one prompt side by side, [prompts * G]."""
        ...


class Reward(Protocol):
    """What each completion is worth."""

    weight: float
    label: str
    """Name of the component in metrics and sample tables."""
    needs_reward_model: ClassVar[bool]

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """Values before weighting, [completions]."""
        ...


class Select(Protocol):
    """Which completions teach."""

    def __call__(self, scored: Scored) -> Tensor:
        """Indices of the completions to keep, [kept], int64."""
        ...


class Advantage(Protocol):
    """How much better than expected a completion was."""

    needs_group: ClassVar[bool]
    """Whether a group of one has no signal under it."""

    def __call__(self, scored: Scored) -> Tensor:
        """Advantages, [completions]."""
        ...


class Objective(Protocol):
    """What the policy minimises."""

    level: ClassVar[Literal["token", "completion", "pair"]]
    """Whether the loss has one entry a token, one a completion, or one a pair of completions of the same prompt."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss of each unit before any reduction, and what is worth watching, one value a unit, no gradient.

        `log_prob` is [tokens], [completions] (sums over their tokens) or [pairs, 2] (better, worse), by the level.
        """
        ...


class Reference(Protocol):
    """What the policy is held against."""

    needed: ClassVar[bool]
    """False where the method has no reference: none is kept in memory."""

    def follow(self, reference: nn.Module, policy: nn.Module, round_number: int) -> bool:
        """Move the reference after a round, in place. Returns whether it changed."""
        ...
