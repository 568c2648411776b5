"""Settings of a training's length and optimisation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat

from models.base.bounds import Count, Positive
from models.learner.optimiser import OptimiserSettings
from models.learner.reduce import Normalisation
from models.method.curriculum import CurriculumSettings

BUDGET_KEY = "schedule.token_budget"
"""Key of the token budget of the loop, for errors."""


@dataclass(frozen=True, kw_only=True)
class ScheduleSettings:
    """Length and optimisation of the training. Set under `schedule:`."""

    rounds: Positive = 100
    """Number of rounds of the run; fewer if `completions` ends it earlier."""
    completions: Positive | None = None
    """Number of sampled completions after which the run ends, at the end of the round; null: only `rounds` ends it."""
    minibatches: Positive = 1
    """Number of optimiser steps in one pass over a round's completions."""
    epochs: Positive = 1
    """Number of passes over a round's completions."""
    normalisation: Normalisation | None = None
    """Mean of the loss for an objective over tokens: over tokens (None means this), over completions, or by a constant.
    Objectives over completions, pairs or groups take the mean of these; no other may be set for them."""
    token_budget: Positive = 16384
    """Maximum number of tokens of a packed row; bounds memory and changes the result by rounding only. On a CPU, a row
    takes no further prompt from 4,096 tokens on."""
    gradient_checkpointing: bool | Literal["auto"] = "auto"
    """Whether layers of the policy keep only their input and are computed again for their backward pass: less memory, a
    third more arithmetic, the same result. auto: once memory has run out."""
    compile: bool | Literal["auto"] = "auto"
    """Whether torch compiles the policy's layers when they are first read (a minute): fewer passes over memory, the
    same result up to rounding. auto: on a GPU, for a model of at least 300 million parameters in rows of at least
    16,384 tokens."""
    checkpoint_every: Positive = 20
    """Rounds between two checkpoints."""
    samples_every: Positive = 20
    """Rounds between two sample tables."""
    skip_nonfinite: Count = 0
    """Number of consecutive steps skipped if loss or gradient are not finite; the next such step ends the run."""
    canary_tolerance: PositiveFloat | None = None
    """Largest mean gap between log-probs of engine and learner, nats a token; None: depends on the precision."""
    staleness: Annotated[int, Field(ge=0, le=64)] = 0
    """In a recipe `async`. 1: a round's completions are sampled while the learner fits the round before. 2 or more:
    they continue while weights change, and are trained on as they end, with tokens at most so many rounds old; resuming
    is then not exact (docs/rounds.md)."""
    too_old: Literal["wait", "drop"] = "wait"
    """Handling of completions that would become older than an `async` of 2 or more allows: the round waits for them, or
    they are dropped and their prompts requested again. Dropping makes rounds faster, and trains on shorter
    completions."""
    curriculum: CurriculumSettings = field(default_factory=CurriculumSettings)
    """Choice and order of the prompts."""
    optimiser: OptimiserSettings = field(default_factory=OptimiserSettings)

    __pydantic_config__ = {  # noqa: RUF012 - read by the recipe's validation, no field; `async` is a word of Python's
        "extra": "forbid",
        "allow_inf_nan": False,
        "alias_generator": lambda name: {"staleness": "async"}.get(name, name),
    }

    @property
    def updates(self) -> int:
        """Number of optimiser steps of the whole run, over which the step size decays."""
        return self.rounds * self.minibatches * self.epochs

    def spent(self, completions: int) -> bool:
        """Return whether a run ends that has sampled so many completions."""
        return self.completions is not None and completions >= self.completions
