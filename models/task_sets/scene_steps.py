"""The questions of `models.task_sets.scenes`, answered after a description of the picture.

    <image:9f86...> where is the blue circle      red square topleft ; blue circle bottomright #### bottomright

Some demonstrations describe the picture with one of the flaws of `models.task_sets.captions`; their answer is the one
that follows from the description.
"""

from __future__ import annotations

from random import Random

from models.datasets.schema import SOUND
from models.task_sets.captions import flawed_caption
from models.task_sets.drawing import Share, Task
from models.task_sets.scenes import KINDS, PLACES, ScenesSettings, items_in, questions


class SceneStepsSettings(ScenesSettings):
    """The section `scene_steps` of params.yaml."""

    flawed: Share
    """Share of the demonstrations for which a flawed description is drawn; it is used if it answers the question."""

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Return a description and the answer, and the flaw of the description, if it has one."""
        (caption,) = task.steps
        if random.random() < self.flawed:
            flaw, flawed = flawed_caption(random, caption)
            answer = answer_from(flawed, task)
            if answer is not None:
                return flaw, (f"{flawed} #### {answer}",)
        return SOUND, (f"{caption} #### {task.answer}",)


def answer_from(caption: str, task: Task) -> str | None:
    """Return the answer to a task's question that follows from a description; None if there is none."""
    shapes = tuple((colour, form, PLACES.index(place)) for colour, form, place in items_in(caption))
    question = task.prompt.partition(" ")[2]
    answers = questions(shapes)[KINDS[task.level - 1]]
    return next((answer for answer, texts in answers.items() if question in texts), None)


SETTINGS = SceneStepsSettings
