"""Settings of a critic and its training, typed: set under `advantage.critic:` of a recipe."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat

from models.base.bounds import Positive
from models.learner.optimiser import OptimiserSettings


@dataclass(frozen=True, kw_only=True)
class CriticSettings:
    """Settings of a value model that is trained together with the policy."""

    sees: Literal["prompt", "privileged"] = "prompt"
    """What the critic reads before a completion: the policy's prompt, or the context that the rollouts hold for a
    judge, such as the prompt and its answer (rollouts privileged). Only the training needs the critic, so the policy
    never depends on what it reads."""
    loss: Literal["mse", "hl_gauss"] = "mse"
    """mse: one output and half its squared error; hl_gauss: cross-entropy over bins against a smoothed target."""
    bins: Annotated[int, Field(ge=2)] = 51
    """Equal bins between `low` and `high`, for hl_gauss."""
    low: float = -1.0
    """Lowest value that hl_gauss can represent, in units of the return; lower targets are clamped to it."""
    high: float = 1.0
    """Highest value that hl_gauss can represent; higher targets are clamped to it."""
    sigma: PositiveFloat = 0.75
    """Standard deviation of the smoothed target, in widths of a bin."""
    clip: PositiveFloat | None = None
    """Largest change of a value since the round began that still lowers the loss, for mse; None: no limit."""
    epochs: Positive = 1
    """Passes over a round's completions."""
    minibatches: Positive = 1
    """Optimiser steps per pass."""
    pretraining: NonNegativeInt = 0
    """Optimiser steps that the critic takes before the policy learns from it; until then advantages are zero."""
    optimiser: OptimiserSettings = field(default_factory=lambda: OptimiserSettings(learning_rate=3e-4, warmup_steps=5))
    """Settings of its optimiser. The step size does not decay, because a critic does not know the length of the run."""

    def __post_init__(self) -> None:
        """Raise an error for settings that exclude each other."""
        if self.low >= self.high:
            raise ValueError(f"critic.low is {self.low}, not below critic.high, which is {self.high}")
        if self.clip is not None and self.loss == "hl_gauss":
            raise ValueError("critic.clip holds values near the old ones, which hl_gauss does not do; leave it out")
        if self.optimiser.decay != "none":
            raise ValueError("critic.optimiser.decay must be none: a critic does not get the length of the run")

    @property
    def outputs(self) -> int:
        """Number of outputs of the head per token."""
        return self.bins if self.loss == "hl_gauss" else 1
