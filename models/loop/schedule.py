"""How long and how hard the loop trains, as typed settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat

from models.bounds import Count, Positive
from models.learner.optimiser import OptimiserSettings
from models.learner.reduce import Normalisation
from models.loop.curriculum import CurriculumSettings


@dataclass(frozen=True, kw_only=True)
class ScheduleSettings:
    """How long and how hard the loop trains. Stands under `schedule:`."""

    rounds: Positive = 100
    """Rounds of the run; fewer where `completions` ends it before."""
    completions: Positive | None = None
    """The run ends with the round in which as many have been sampled; null: only `rounds` end it."""
    minibatches: Positive = 1
    """Optimiser steps of one pass over a round's completions."""
    epochs: Positive = 1
    """Passes over a round's completions."""
    normalisation: Normalisation | None = None
    """Which mean the loss of an objective over tokens is: over tokens (None means this), over completions, or by a
    constant. Objectives over completions, pairs or groups take the mean of these, and nothing else may be asked of
    them."""
    token_budget: Positive = 16384
    """Tokens of one packed row; bounds memory and does not change the result."""
    gradient_checkpointing: bool | Literal["auto"] = "auto"
    """Layers of the policy keep their input alone and are read again for their backward pass: less memory, a third more
    arithmetic, the same result. auto: once memory has run out."""
    compile: bool | Literal["auto"] = "auto"
    """Whether torch compiles the policy's layers when they are first read (a minute): fewer passes over memory, the
    same result up to rounding. auto: on a GPU, for a model of at least 300 million
    parameters in rows of at least 16,384 tokens."""
    checkpoint_every: Positive = 20
    """Rounds between two checkpoints."""
    samples_every: Positive = 20
    """Rounds between two sample tables."""
    skip_nonfinite: Count = 0
    """Optimiser steps in a row that are skipped where loss or gradient are not finite; the next such ends the run."""
    canary_tolerance: PositiveFloat | None = None
    """Largest gap between engine and learner, the mean in nats a token; None: by precision."""
    staleness: Annotated[int, Field(ge=0, le=64)] = 0
    """In a recipe `async`. 1: a round's completions are sampled while the learner fits the round before. 2 or more:
    they go on while weights change, and are trained on as they end, with tokens so many rounds old at most; exact
    resuming ends there (docs/rounds.md)."""
    too_old: Literal["wait", "drop"] = "wait"
    """What happens to completions that would grow older than `async` says, 2 or more: the round waits for them, or they
    are dropped and their prompts asked anew. Rounds are faster so, and trained on shorter completions."""
    curriculum: CurriculumSettings = field(default_factory=CurriculumSettings)
    """Which prompts come when, and which never."""
    optimiser: OptimiserSettings = field(default_factory=OptimiserSettings)

    __pydantic_config__ = {  # noqa: RUF012 - read by the recipe's validation, no field; `async` is a word of Python's
        "extra": "forbid",
        "allow_inf_nan": False,
        "alias_generator": lambda name: {"staleness": "async"}.get(name, name),
    }

    @property
    def updates(self) -> int:
        """Optimiser steps of the whole run, over which the step size decays."""
        return self.rounds * self.minibatches * self.epochs

    def spent(self, completions: int) -> bool:
        """Whether a run that has sampled so many ends."""
        return self.completions is not None and completions >= self.completions
