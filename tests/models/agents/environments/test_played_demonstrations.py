"""Demonstrations are played in their environments, which must give the answers that the demonstrations contain."""

from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

import models
from models.agents.environments.calls import Calls
from models.agents.environments.countdown import Countdown
from models.agents.environments.grid_walk import GridWalk
from models.agents.environments.screen import ScreenEnvironment
from models.agents.environments.shop import Shop
from models.agents.environments.twenty_questions import TwentyQuestions
from models.base.errors import UserError
from models.datasets.params import checked, read_section
from models.datasets.schema import SOUND
from models.method.environment import Environment
from models.method.problem import Problem
from models.task_sets.drawing import Task, TaskSettings, draw_tasks, make_rows
from models.task_sets.make_tasks import settings_type

PARAMS = Path(models.__path__[0]).parent / "params.yaml"
WORLDS: dict[str, Environment] = {
    "calls": Calls(tries=2),
    "countdown": Countdown(),
    "cursor_screens": ScreenEnvironment(pointer="cursor"),
    "drawn_forecasts": GridWalk(shows="picture"),
    "drawn_thoughts": GridWalk(shows="picture", thoughts=("think",)),
    "drawn_views": GridWalk(shows="views"),
    "drawn_walks": GridWalk(shows="picture"),
    "grid_notes": GridWalk(shows="notes"),
    "grid_thoughts": GridWalk(thoughts=("think",)),
    "grid_walk": GridWalk(),
    "masked_walks": GridWalk(shows="picture"),
    "novel_walks": GridWalk(shows="picture"),
    "screens": ScreenEnvironment(misses=1),
    "shop": Shop(),
    "twenty_questions": TwentyQuestions(),
}
SMALL = {"train": 40, "validation": 0, "gate": 0}


@cache
def settings(name: str) -> TaskSettings:
    """Return the settings of params.yaml, with few rows."""
    section = {**read_section(PARAMS, name), "problems": SMALL, "demonstrations": {"train": 80}}
    return checked(settings_type(name), section, str(PARAMS))


def played(name: str, task: Task, turns: tuple[str, ...]) -> tuple[list[str], dict[str, Any]]:
    """Return the environment's answers to the policy's turns, and its info after the last turn."""
    opened = WORLDS[name].open(Problem("p", task.prompt, task.answer))
    text, info = opened.reset(0)
    heard: list[str] = []
    if text and len(turns) > 1:  # the environment speaks first
        heard, turns = [text], turns[2:]
    for turn in turns[::2]:
        said, _, _, _, info = opened.step(turn)
        heard.append(said)
    opened.close()
    return heard, info


@pytest.mark.parametrize("name", WORLDS)
def test_a_demonstration_hears_what_the_environment_says_and_a_sound_one_reaches_the_goal(name: str) -> None:
    random = Random(3)
    for task in draw_tasks(settings(name), "train"):
        for _ in range(4):
            flaw, turns = settings(name).demonstrate(random, task)
            heard, info = played(name, task, turns)
            assert heard[: len(turns) // 2] == list(turns[1::2])
            assert flaw != SOUND or info["solved"]
        heard, info = played(name, task, task.steps)
        assert info["solved"]


@pytest.mark.parametrize("name", WORLDS)
def test_the_same_settings_make_the_same_rows_and_demonstrations_hold_no_hidden_answer(name: str) -> None:
    rows = make_rows(settings(name))
    assert rows == make_rows(settings(name))
    assert all(row["answer"] for row in rows["problems"]["train"])
    assert not any(row["answer"] for row in rows["demonstrations"]["train"])


@pytest.mark.parametrize("name", WORLDS)
def test_a_problem_of_another_environment_is_refused_by_a_line_that_names_it(name: str) -> None:
    with pytest.raises(UserError, match=f"problem p7: the answer is none of environment {WORLDS[name].name}"):
        WORLDS[name].open(Problem("p7", "2 + 2 = ?", "4"))


@pytest.mark.parametrize("name", WORLDS)
def test_words_that_are_no_action_never_reach_the_goal_nor_fail(name: str) -> None:
    for task in draw_tasks(settings(name), "train")[:5]:
        for words in ("", "\n", "####", "é" * 300, task.answer, "<tool_call>{}</tool_call>", "'; DROP TABLE item; --"):
            _, info = played(name, task, (words,))
            assert not info["solved"]
