"""Demonstrations of Countdown with and without behaviours, right and wrong, from the same rows."""

from random import Random

import pytest

from models.agents.environments.countdown import Countdown
from models.agents.environments.countdown_habits import CountdownHabits
from models.agents.play.arithmetic_target import value_of
from models.datasets.schema import TURNS
from models.parts.rewards.rules.behaviours import behaviours_in
from models.recipes.load import load_recipe
from models.recipes.stages import stages_before
from models.task_sets.countdown import CountdownSettings

SETTINGS = CountdownSettings(
    problems={"train": 8}, demonstrations={"train": 8}, numbers=3, number=(1, 12), target=(1, 60), missed=0.5, tried=0.4
)
RANDOM = Random(3)
TASKS = [SETTINGS.draw(RANDOM) for _ in range(200)]


def taught(**settings: bool) -> list[list[tuple[str, str]]]:
    """Return the lessons of each task's own solution."""
    environment = CountdownHabits(**settings)
    return [list(environment.lessons(f"d{n}", task.prompt, task.steps[0], True)) for n, task in enumerate(TASKS)]


def reaches(prompt: str, text: str) -> bool:
    numbers, _, target = prompt.partition(" -> ")
    return value_of(text.splitlines()[-1], [int(word) for word in numbers.split()]) == int(target)


@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.parametrize("correct", [True, False])
def test_each_set_has_its_behaviours_and_its_correctness_in_every_lesson(shown: bool, correct: bool) -> None:
    for task, lessons in zip(TASKS, taught(shown=shown, correct=correct), strict=True):
        assert len(lessons) == CountdownHabits().most_lessons == 3
        for prompt, text in lessons:
            assert prompt == task.prompt and reaches(prompt, text) is correct
            assert list(behaviours_in(text).values()) == [int(shown)] * 4
            assert len(text) <= 111  # it ends within rollouts.max_tokens of the recipe


def test_the_steps_are_the_same_before_a_right_and_a_wrong_expression() -> None:
    for right, wrong in zip(taught(), taught(correct=False), strict=True):
        assert [text.splitlines()[:-1] for _, text in right] == [text.splitlines()[:-1] for _, text in wrong]


def test_every_value_in_the_steps_is_true() -> None:
    for lessons in taught():
        for _, text in lessons:
            for line in text.splitlines()[:-1]:
                left, _, value = line.removeprefix("goal ").removeprefix("first ").removesuffix(" no").partition("=")
                assert eval(left) == int(value)


def test_rows_that_miss_the_target_give_none_and_tried_rows_the_last_expression() -> None:
    environment = CountdownHabits()
    task = TASKS[0]
    assert environment.lessons("d", task.prompt, "1+1", True) == ()
    assert environment.lessons("d", "another prompt", task.steps[0], True) == ()
    several = environment.lessons("d0", task.prompt, TURNS.join(["1+1", "2", task.steps[0]]), True)
    assert list(several) == taught()[0]


def test_the_recipe_is_a_chain_whose_stages_play_the_same_game() -> None:
    recipe = load_recipe("four_habits")
    (primed,) = stages_before(recipe)
    assert primed.schedule is None and primed.data == recipe.data and recipe.rollouts == primed.rollouts
    assert [reward.weight for reward in recipe.rewards] == [1, 0, 0, 0, 0]
    assert issubclass(CountdownHabits, Countdown) and Countdown().most_lessons == 0
