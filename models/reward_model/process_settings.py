"""What a process reward model is fitted to, and how it is read. Stands under `reward_model.process:`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from models.bounds import Positive, Temperature
from models.critic.steps import MARKS
from models.part_types import slot_type
from models.parts import default_part
from models.reward_model.process import Aggregation, ProcessReading
from models.reward_model.solutions import Labels

if TYPE_CHECKING:
    Chosen = Labels
else:
    Chosen = slot_type("labels")


@dataclass(frozen=True, kw_only=True)
class ProcessSettings:
    """A value a step in place of a score a completion."""

    labels: Chosen = field(default_factory=lambda: default_part("labels")())
    """Who labels the steps."""
    problems: Positive = 200
    """Problems of the training split whose solutions are labelled, evenly spaced over it."""
    hardest: Positive | None = None
    """Highest level of these problems, where the harder ones are to be judged without having been seen; null: any. The
    held-out problems are of every level."""
    held_out: Positive = 50
    """Problems of the validation split; the accuracy is that on the steps of their solutions."""
    samples: Positive = 8
    """Solutions of each that the policy draws before it is trained."""
    temperature: Temperature = 1.0
    """Of solutions and continuations."""
    marks: tuple[str, ...] = MARKS
    """A token whose text holds one of these ends a step."""
    aggregate: Aggregation = "min"
    """How the values of a completion's steps become its score, where it is ranked: the least, their product, their
    mean, or the last."""

    @property
    def reading(self) -> ProcessReading:
        """How the model is read."""
        return ProcessReading(self.marks, self.aggregate)
