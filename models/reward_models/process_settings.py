"""Training data and reading of a process reward model, in the section `reward_model.process:`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from models.base.bounds import Positive, Temperature
from models.method.registry import default_part, slot_type
from models.method.steps import MARKS
from models.reward_models.process import Aggregation, ProcessReading
from models.reward_models.solutions import Labels

if TYPE_CHECKING:
    Chosen = Labels
else:
    Chosen = slot_type("labels")


@dataclass(frozen=True, kw_only=True)
class ProcessSettings:
    """A value per step instead of a score per completion."""

    labels: Chosen = field(default_factory=lambda: default_part("labels")())
    """Labeller of the steps."""
    problems: Positive = 200
    """Problems of the training split whose solutions are labelled, evenly spaced over it."""
    hardest: Positive | None = None
    """Highest level of these problems, to test whether the model generalises to harder ones; null: any. The held-out
    problems are of every level."""
    held_out: Positive = 50
    """Problems of the validation split; the accuracy is measured on the steps of their solutions."""
    samples: Positive = 8
    """Solutions per problem, sampled from the policy before it is trained."""
    temperature: Temperature = 1.0
    """Sampling temperature of solutions and continuations."""
    marks: tuple[str, ...] = MARKS
    """Separators of steps: a token whose text contains one of them ends a step."""
    aggregate: Aggregation = "min"
    """Aggregation of the values of a completion's steps to its score, when completions are ranked: the minimum, their
    product, their mean, or the last."""

    @property
    def reading(self) -> ProcessReading:
        """Splitting and aggregation of the steps."""
        return ProcessReading(self.marks, self.aggregate)
