"""Tests of values that a completion states of code: a value is checked by running the code."""

from collections import Counter
from random import Random
from typing import cast

import pytest

from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.resources import RunResources
from models.parts.rewards.code.unit_tests import UnitTests
from models.sandbox.settings import SandboxSettings
from models.sandbox.written import written_value
from models.task_sets.snippets import SnippetsSettings, snippet, worked
from tests.support.malformed_texts import malformed, rollout

RESOURCES = cast(RunResources, None)
REWARD = UnitTests(reads="value", wrong=0.0, failed=0.0, sandbox=SandboxSettings(seconds=20, workers=2))
FORWARD = Problem("f", "", tests=f"{snippet('', '3', 'a += 4 ; a *= 2', 'a')}assert given() == snippet()\n")
FAILING = Problem("e", "", tests=f"{snippet('', '3', 'a += 4 ; a %= 0', 'a')}assert given() == snippet()\n")
BACKWARD = Problem("b", "", tests=f"{snippet('a', 'a', 'a *= a')}assert snippet(given()) == 9\n")
FORWARD, FAILING, BACKWARD = (
    Problem(each.id, each.prompt, tests=each.tests, entry_point="given") for each in (FORWARD, FAILING, BACKWARD)
)


@pytest.mark.parametrize(
    "problem, text, worth",
    [
        (FORWARD, "7 ; 14 ; #### 14", 1.0),
        (FORWARD, "The answer is 14.", 1.0),
        (FORWARD, "#### 7", 0.0),
        (FORWARD, "#### [14]", 0.0),
        (FORWARD, "#### '14'", 0.0),
        (FORWARD, "14", -1.0),
        (FORWARD, "####", -1.0),
        (FAILING, "7 ; #### ZeroDivisionError", 1.0),
        (FAILING, "#### ValueError", 0.0),
        (FAILING, "#### 7", 0.0),
        (BACKWARD, "#### 3", 1.0),
        (BACKWARD, "#### -3", 1.0),  # any input that gives this result is right
        (BACKWARD, "#### 9", 0.0),
        (BACKWARD, "#### three", 0.0),
        (BACKWARD, "#### None", 0.0),
    ],
)
def test_a_stated_value_is_tested_by_the_code(problem: Problem, text: str, worth: float) -> None:
    assert REWARD(RESOURCES, [rollout(text, problem)]).tolist() == [worth]


@pytest.mark.parametrize(
    "text, value",
    [
        ("#### 14", "14"), ("#### -3", "-3"), ("#### [1, 'a']", "[1, 'a']"), ("#### a b", "'a b'"), ("none", None),
        ("#### __import__('os')", "\"__import__('os')\""), ("#### f(1)", "'f(1)'"), ("#### '", '"\'"'),
        ("#### " + "9" * 5000, None), ("#### " + "(" * 1500, repr("(" * 1500)),
    ],
)  # fmt: skip
def test_what_is_stated_is_a_literal_or_a_text_and_is_never_run(text: str, value: str | None) -> None:
    assert written_value(text) == value


def test_no_text_whatever_raises_and_what_was_cut_is_worth_the_least() -> None:
    assert bool((REWARD(RESOURCES, malformed(FORWARD)) <= 0).all())
    assert REWARD(RESOURCES, [rollout("#### 14", FORWARD, finished=False)]).tolist() == [-1.0]
    assert REWARD.right([Attempt(FORWARD, "#### 14", True), Attempt(FORWARD, "#### 14", False)]) == [True, False]


@pytest.mark.rotating(of=6)
def test_demonstrations_are_what_their_flaw_says_in_every_direction() -> None:
    settings = SnippetsSettings(problems={}, guessed=0.4, slip=0.5)
    random, seen = Random(0), []
    for number in range(90):
        task = settings.draw(random)
        flaw, (text,) = settings.demonstrate(random, task)
        problem = Problem(str(number), task.prompt, task.answer, tests=task.tests, entry_point=task.entry_point)
        seen.append((task.level, flaw, rollout(text, problem)))
    worth = REWARD(RESOURCES, [made for _, _, made in seen]).tolist()
    for (level, flaw, made), value in zip(seen, worth, strict=True):
        assert value == (flaw == "none"), (level, made.text, made.problem.prompt)
    counts = Counter((level, flaw) for level, flaw, _ in seen)
    assert min(counts[level, "none"] for level in (1, 2, 3)) > 4 and counts[3, "slip"] > 2
    assert worked(3, [("+=", 4), ("//=", 0), ("*=", 2)]) == [7]
