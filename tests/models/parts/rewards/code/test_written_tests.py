"""Rewards for written tests: mutants, each component by hand, tests that could reach their judge, and style."""

from collections import defaultdict
from dataclasses import replace
from random import Random
from typing import cast

import pytest

from models.answers.mutants import mutants_of
from models.answers.smells import METRICS, met_by
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.resources import RunResources
from models.parts.rewards.code.style_of_tests import StyleOfTests
from models.parts.rewards.code.written_tests import WrittenTests
from models.sandbox.settings import SandboxSettings
from models.task_sets.assertions import INPUTS, LINES, AssertionsSettings, read
from models.task_sets.programs import result
from tests.support.malformed_texts import malformed, rollout

RESOURCES = cast(RunResources, None)
SANDBOX = SandboxSettings(seconds=20, seconds_together=40, workers=2)
REFERENCE = "def f(x):\n    if x > 5:\n        x = 5\n    return x"
PROBLEM = Problem(
    "p", "at most 5", REFERENCE, tests="".join(f"assert f({x}) == {min(x, 5)}\n" for x in range(10)), entry_point="f"
)
ASKS = ("syntax", "runs", "passes", "covers", "kills")


def values(asks: str, *texts: str, problem: Problem = PROBLEM, finished: bool = True) -> list[float]:
    reward = WrittenTests(asks=asks, sandbox=SANDBOX)  # type: ignore[arg-type]
    return reward(RESOURCES, [rollout(text, problem, finished=finished) for text in texts]).tolist()


def test_mutants_of_a_function_by_hand() -> None:
    """The four mutants negate the comparison, change > to >=, and increase each of the two numbers by one."""
    changed = [("x > 5", "x <= 5"), ("x > 5", "x >= 5"), ("x > 5", "x > 6"), ("x = 5", "x = 6")]
    assert sorted(mutants_of(REFERENCE, 99)) == sorted(REFERENCE.replace(*change) for change in changed)
    steps = "def f(x):\n    x += 3\n    return min(x, 7) and (not x)"
    assert len(mutants_of(steps, 99)) == len(set(mutants_of(steps, 99))) == 6
    assert len(mutants_of(steps, 2)) == 2 and set(mutants_of(steps, 2)) < set(mutants_of(steps, 99))
    for nothing in ("def f(", "x", "", "\x00", "(" * 5000):
        assert mutants_of(nothing, 9) == ()


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize(
    "text, worth",
    [  # syntax, runs, passes, covers, kills; three mutants count: `x >= 5` is the same function
        ("assert f(6) == 5 ; assert f(2) == 2", (1, 1, 1, 1, 1)),
        ("assert f(6) == 5", (1, 1, 1, 1, 1)),
        ("assert f(9) == 5", (1, 1, 1, 1, 2 / 3)),  # the mutant `x > 6` passes
        ("assert f(3) == 3", (1, 1, 1, 2 / 3, 1 / 3)),  # `x = 5` is not reached: only the mutant `x <= 5` fails
        ("assert f(1) == f(1)", (1, 1, 1, 2 / 3, 0)),  # passes for any function
        ("assert f(6) != 99", (1, 1, 1, 1, 0)),
        ("assert f(6) == 6", (1, 1, 0, 0, 0)),
        ("assert f(6) == 5 ; assert f(2) == 3", (1, 1, 0, 0, 0)),
        ("assert f('a') == 5", (1, 0, 0, 0, 0)),
        ("assert g(6) == 5", (1, 0, 0, 0, 0)),
        ("assert 5 == 5", (1, 0, 0, 0, 0)),
        ("f = min ; assert f(6, 5) == 5", (1, 0, 0, 0, 0)),
        ("assert f ( 6 = 5", (0, 0, 0, 0, 0)),
        ("I test.\n```python\ndef check(candidate):\n    assert candidate(6) == 5\n```\nSo.", (1, 1, 1, 1, 1)),
    ],
)
def test_each_part_of_the_worth_by_hand(text: str, worth: tuple[float, ...]) -> None:
    assert [values(asks, text)[0] for asks in ASKS] == pytest.approx(list(worth))


@pytest.mark.parametrize(
    "text",
    [
        "import sys ; assert f(6) == 5",
        "assert f(6) == 5 or __import__('os')",
        "assert f.__self__.case or f(6) == 5",
        "assert eval('f(6)') == 5",
        "assert f(1) == f(1) and '{0.__closure__}'.format(f)",
        "g = '{0.__closure__}' ; assert f(1) == f(1) and g.format(f)",
        "assert f(1) == f(1) and '{0.__closure__}'.format_map([f])",
        "assert f(1) == f(1) and str.format('{0.__closure__}', f)",
    ],
)
def test_tests_that_could_reach_their_judge_are_not_run(text: str) -> None:
    assert [values(asks, text)[0] for asks in ASKS] == [1, 0, 0, 0, 0]


def test_tests_cannot_tell_whom_they_run_on_but_by_what_it_answers() -> None:
    """The function's text must reveal neither its source nor whether it is counted; only the reference is counted."""
    for known in ("'counted': True", "x > 5"):
        for said in ("repr(f)", "f'{f}'", "'%s' % (f,)", "'{}'.format(f)"):
            assert values("runs", f'assert f(1) == f(1) and "{known}" in {said}') == [1.0], said
            assert values("passes", f'assert f(1) == f(1) and "{known}" in {said}') == [0.0], said


def test_without_tests_of_the_problem_every_mutant_counts() -> None:
    alone = replace(PROBLEM, tests="")
    assert values("kills", "assert f(6) == 5", problem=alone) == [0.75]
    assert values("kills", "assert f(6) == 5", problem=replace(PROBLEM, answer="def f(x):\n    return x")) == [0.0]


def test_what_was_cut_or_has_no_reference_is_worth_nothing() -> None:
    for asks in ASKS:
        assert values(asks, "assert f(6) == 5", finished=False) == [0.0]
        assert values(asks, "assert f(6) == 5", problem=replace(PROBLEM, answer=" ")) == [0.0]
        assert values(asks) == []
    assert values("passes", "assert f(6) == 5", problem=replace(PROBLEM, answer="1 +")) == [0.0]


@pytest.mark.rotating(of=6)
def test_tests_without_end_are_worth_nothing_and_the_reward_ends() -> None:
    hurried = WrittenTests(asks="passes", sandbox=SandboxSettings(seconds=0.5, seconds_together=0.5, workers=1))
    texts = ["while True: f(1)", "assert f(6) == 5"]
    assert hurried(RESOURCES, [rollout(text, PROBLEM) for text in texts]).tolist()[0] == 0.0


def test_no_text_whatever_raises() -> None:
    for asks in ASKS:
        reward = WrittenTests(asks=asks, sandbox=SANDBOX)  # type: ignore[arg-type]
        worth = reward(RESOURCES, malformed(PROBLEM))
        assert bool(((worth >= 0) & (worth <= (asks == "syntax"))).all()), asks
    assert bool((StyleOfTests(metrics=("focal", "distinct"))(RESOURCES, malformed(PROBLEM)) == 0).all())


def test_tests_that_kill_all_mutants_decide_and_no_other_part_does() -> None:
    attempts = [
        Attempt(PROBLEM, "assert f(6) == 5", True), Attempt(PROBLEM, "assert f(6) == 5", False),
        Attempt(PROBLEM, "assert f(9) == 5", True), Attempt(PROBLEM, "assert f(1) == f(1)", True),
    ]  # fmt: skip
    assert WrittenTests(sandbox=SANDBOX).right(attempts) == [True, False, False, False]
    assert [WrittenTests(asks=asks).verifies for asks in ASKS] == [False] * 4 + [True]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "tests, unmet",
    [
        ("assert f(2) == 5 ; assert f(3) == 6", set()),
        ("def test_f():\n    assert f(2) == 5\n    assert f(3) == 6", set()),
        ("assert f(2) == 5 ; assert f ( 2 )==5", {"distinct"}),
        ("assert f(2) == 5 ; assert 5 == 5", {"telling"}),
        ("assert f(2) == f( 2 )", {"telling"}),
        ("assert f(2) == 5, 'f'\nassert True", {"telling"}),
        ("print(f(2)) ; assert f(2) == 5", {"silent"}),
        ("assert f(2) == 5 if f(1) else True", {"unconditional"}),
        ("for x in (1, 2):\n    assert f(x) == x + 3", {"unconditional"}),
        ("try:\n    assert f(2) == 5\nexcept ValueError:\n    pass", {"unconditional"}),
        ("assert g(2) == 5", {"focal"}),
        ("f(2)", {"asserts", "distinct", "unconditional", "silent", "telling"}),
        ("pass", {"asserts", "focal", "distinct", "unconditional", "silent", "telling"}),
        ("", set(METRICS)),
        ("assert f(2", set(METRICS)),
        ("\x00", set(METRICS)),
        ("#" * 30_000, set(METRICS)),
        ("-" * 10_000 + "1", set(METRICS)),
    ],
)
def test_metrics_of_style_by_hand(tests: str, unmet: set[str]) -> None:
    assert met_by(tests, "f") == set(METRICS) - unmet
    (worth,) = StyleOfTests()(RESOURCES, [rollout(tests, PROBLEM)]).tolist()
    assert worth == pytest.approx(1 - len(unmet) / len(METRICS))


def test_one_metric_is_worth_all_or_nothing_and_all_of_them_decide() -> None:
    texts = ["assert f(2) == 5 ; assert f(2) == 5", "assert f(2) == 5", "assert f(2"]
    single, every = StyleOfTests(metrics=("distinct",)), StyleOfTests()
    assert single(RESOURCES, [rollout(text, PROBLEM) for text in texts]).tolist() == [0.0, 1.0, 0.0]
    assert (single.verifies, every.verifies) == (False, True)
    assert every.right([Attempt(PROBLEM, text, True) for text in texts]) == [False, True, False]
    assert every.right([Attempt(PROBLEM, texts[1], False)]) == [False]


@pytest.mark.rotating(of=6)
def test_demonstrations_are_what_their_flaw_says() -> None:
    settings = AssertionsSettings(problems={}, broken=0.2, wrong=0.3, smelly=0.6)
    random, seen = Random(0), []
    unmet: defaultdict[str, set[str]] = defaultdict(set)
    for number in range(100):
        task = settings.draw(random)
        flaw, (text,) = settings.demonstrate(random, task)
        problem = Problem(str(number), task.prompt, task.answer, tests=task.tests, entry_point=task.entry_point)
        unmet[flaw] |= set(METRICS) - met_by(text, "f")
        seen.append((flaw, rollout(text, problem)))
        assert {verb for verb, _ in read(task.prompt)} <= set(LINES)
        assert str([result(read(task.prompt), x) for x in INPUTS]) in task.tests
    passes = WrittenTests(asks="passes", sandbox=SANDBOX)(RESOURCES, [made for _, made in seen]).tolist()
    for (flaw, _), passed in zip(seen, passes, strict=True):
        assert passed == (flaw not in ("broken", "wrong")), flaw
    assert unmet["none"] == unmet["wrong"] == set() and unmet["broken"] == set(METRICS)
    smells = {"alike": "distinct", "idle": "telling", "printing": "silent", "conditional": "unconditional"}
    assert all(unmet[smell] == {metric} for smell, metric in smells.items())


@pytest.mark.rotating(of=6)
def test_a_whole_domain_kills_every_mutant_of_every_function_that_is_drawn() -> None:
    settings = AssertionsSettings(problems={}, broken=0, wrong=0, smelly=0)
    tasks = [settings.draw(Random(seed)) for seed in range(4)]
    attempts = [
        Attempt(Problem(str(n), task.prompt, task.answer, tests=task.tests, entry_point="f"), task.steps[0], True)
        for n, task in enumerate(tasks)
    ]
    assert WrittenTests(sandbox=SANDBOX).right(attempts) == [True] * len(tasks)
