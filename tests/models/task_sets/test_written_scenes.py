"""The task set `written_scenes`: the description in a prompt answers its question, and no picture is left."""

from models.base.images import images_in
from models.task_sets.drawing import Task, draw_tasks
from models.task_sets.scene_steps import answer_from
from models.task_sets.written_scenes import WrittenScenesSettings

SETTINGS = WrittenScenesSettings(
    problems={"train": 300, "validation": 60, "gate": 60},
    pictures=400,
    shares={"colour": 1, "shape": 1, "count": 1, "position": 1, "relation": 1},
)


def test_the_answer_follows_from_the_description() -> None:
    for task in draw_tasks(SETTINGS, "train"):
        (caption,) = task.steps
        assert task.prompt.startswith(f"{caption} ") and not images_in(task.prompt)
        question = task.prompt.removeprefix(f"{caption} ")
        assert answer_from(caption, Task(f"<image> {question}", "", task.level, ())) == task.answer


def test_a_description_is_in_one_split() -> None:
    captions = [{task.steps[0] for task in draw_tasks(SETTINGS, split)} for split in ("train", "validation", "gate")]
    assert not captions[0] & captions[1] and not captions[0] & captions[2] and not captions[1] & captions[2]
