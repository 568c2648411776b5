"""The questions of `models.task_sets.scenes` about a description instead of a picture.

    red square topleft ; blue circle bottomright where is the circle      bottomright

The questions require the same reasoning as those about pictures, but no perception.
"""

from __future__ import annotations

from random import Random

from models.base.images import REFERENCE
from models.datasets.schema import Split
from models.datasets.splits import split_by_hash
from models.task_sets.drawing import Task
from models.task_sets.scenes import ScenesSettings


class WrittenScenesSettings(ScenesSettings):
    """The section `written_scenes` of params.yaml."""

    def draw(self, random: Random) -> Task:
        """Draw a question, as about a picture, and write the picture's description in its place."""
        task = super().draw(random)
        return Task(REFERENCE.sub(task.steps[0], task.prompt), task.answer, task.level, task.steps)

    def split_of(self, task: Task) -> Split:
        """Return the split of a question, which is that of its description."""
        return split_by_hash(task.steps[0])


SETTINGS = WrittenScenesSettings
