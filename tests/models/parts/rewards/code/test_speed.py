"""The reward for speed: counted steps of right programs, and no reward for code that could reach the counter."""

from __future__ import annotations

import sys
from dataclasses import replace
from random import Random
from typing import cast

import pytest

from models.method.problem import Problem
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.rewards.code.speed import Speed
from models.parts.rewards.code.unit_tests import UnitTests
from models.sandbox.inside.counting import lines_of
from models.sandbox.interface import Program, ProgramRunner
from models.sandbox.plain_code import is_plain
from models.sandbox.settings import SandboxSettings
from models.sandbox.shared import shared_sandbox
from models.task_sets.programs import INPUTS, QUICK, SLOW, ProgramsSettings, Step, read, result

SANDBOX = SandboxSettings(seconds=30, seconds_together=60, workers=2)
REWARD = Speed(sandbox=SANDBOX)
RESOURCES = cast(RunResources, None)
HEAD = 'def f ( x ) : " add 3 " ;'
PROBLEM = Problem("p", HEAD, f"{HEAD} x += 3 ; return x", tests="assert f(2) == 5\nassert f(0) == 3\n", entry_point="f")


def _rollout(text: str, problem: Problem = PROBLEM, finished: bool = True) -> Rollout:
    return Rollout(problem, 0, (1,), None, text, finished)


def _sandbox() -> ProgramRunner:
    return shared_sandbox(SANDBOX)


def test_steps_are_instructions_of_the_program_itself() -> None:
    # load x, load 3, add, store; load x, return. The work inside `sum` and `range` takes no steps
    (quick,) = _sandbox().judge([Program("def f(x):\n x += 3\n return x", "assert f(1) == 4", "f", counted=True)])
    assert (quick.outcome, quick.steps, quick.lines) == ("passed", 6, 2)
    twice = Program("def f(x):\n x += 3\n return x", "assert f(1) == 4\nassert f(2) == 5", "f", counted=True)
    small, large = (
        Program(f"def f(x): return x + sum(range({most})) * 0", "assert f(1) == 1", "f", counted=True)
        for most in (2, 90000)
    )
    verdicts = _sandbox().judge([twice, small, large, replace(twice, counted=False)])
    assert verdicts[0].steps == 12
    assert verdicts[1].steps == verdicts[2].steps > 0
    assert (verdicts[3].outcome, verdicts[3].steps) == ("passed", 0)


def test_what_is_worked_out_while_a_program_is_loaded_counts_and_definitions_do_not() -> None:
    """A loop of n iterations takes 3 n + 1 steps; one step of each of its three instructions is free.

    Python 3.12 counts two steps fewer for a loop, so one iteration is free there.
    """
    heads = ["import math\nY = 3\n", *(f"for i in range({n}): pass\n" for n in (0, 1, 9))]
    programs = [f"{head}def f(x):\n x += 3\n return x" for head in heads]
    verdicts = _sandbox().judge([Program(each, "assert f(1) == 4", "f", counted=True) for each in programs])
    once = 1 if sys.version_info < (3, 12) else 0
    assert [(each.steps, each.lines) for each in verdicts] == [(6, 2), (6, 2), (6 + once, 2), (6 + 25, 2)]
    # the program is loaded for each of the two cases
    known = "T = { x : x + 3 for x in range ( 99 ) }\ndef f ( x ) : return T [ x ]"
    assert Speed(fastest=9.0, sandbox=SANDBOX)(RESOURCES, [_rollout(known)]).tolist()[0] < 6 / 99


def test_who_goes_so_deep_that_the_counting_ends_is_worth_nothing() -> None:
    deep = "def d():\n try: d()\n except RecursionError: pass\n"
    inside, before = f"{deep}def f(x): d(); return x + 3", f"{deep}d()\ndef f(x): return x + 3"
    assert is_plain(inside) and is_plain(before)
    assert UnitTests(sandbox=SANDBOX)(RESOURCES, [_rollout(inside), _rollout(before)]).tolist() == [1.0, 1.0]
    assert REWARD(RESOURCES, [_rollout(inside), _rollout(before)]).tolist() == [0.0, 0.0]


def test_the_same_program_takes_the_same_steps_again() -> None:
    program = Program("def f(x):\n return len({str(i) for i in range(x)})", "assert f(9) == 9", "f", counted=True)
    assert len({verdict.steps for verdict in _sandbox().judge([program] * 4)}) == 1


def test_a_right_program_is_worth_the_references_steps_over_its_own() -> None:
    texts = ["x += 3 ; return x", "x += 1 ; x += 2 ; return x", "return x + 3", "x += 4 ; return x", "return ("]
    # the reference takes 6 steps; 10 with another addition; 4 without a store
    assert REWARD(RESOURCES, [_rollout(text) for text in texts]).tolist() == pytest.approx([1.0, 0.6, 1.0, 0.0, 0.0])
    free = Speed(fastest=2.0, sandbox=SANDBOX)
    assert free(RESOURCES, [_rollout("return x + 3")]).tolist() == pytest.approx([1.5])


def test_a_slow_right_program_is_worth_more_than_any_wrong_one_with_both_rewards() -> None:
    rollouts = [_rollout("x += sum ( 1 for i in range ( 3 ) ) ; return x"), _rollout("x = 5 ; return x")]
    total = UnitTests(sandbox=SANDBOX)(RESOURCES, rollouts) + 0.5 * REWARD(RESOURCES, rollouts)
    assert total[0] > 1.0 > 0.3 >= total[1]


@pytest.mark.parametrize(
    "text",
    [
        "import sys ; sys . settrace ( None ) ; return x + 3",
        "__import__ ( 'sys' ) . settrace ( None ) ; return x + 3",
        "eval ( 'x' ) ; return x + 3",
        "( ) . __class__ ; return x + 3",
    ],
)
def test_who_could_reach_the_counter_is_not_believed(text: str) -> None:
    assert UnitTests(sandbox=SANDBOX)(RESOURCES, [_rollout(text)]).tolist() == [1.0]
    assert REWARD(RESOURCES, [_rollout(text)]).tolist() == [0.0]


@pytest.mark.parametrize("text", ["", "\x00\ud800", "(" * 5000, "x" * 200_000, "\xff\xfe binary", "return [1] * x"])
def test_anything_else_is_worth_nothing_and_raises_nothing(text: str) -> None:
    assert REWARD(RESOURCES, [_rollout(text)]).tolist() == [0.0]


def test_what_was_cut_or_has_no_tests_or_no_right_reference_is_worth_nothing() -> None:
    right = "x += 3 ; return x"
    problems = [
        replace(PROBLEM, tests=""),
        replace(PROBLEM, answer="1 +"),
        replace(PROBLEM, answer="def f(x): return x"),
    ]
    assert REWARD(RESOURCES, [_rollout(right, problem) for problem in problems]).tolist() == [0.0] * 3
    assert REWARD(RESOURCES, [_rollout(right, finished=False)]).tolist() == [0.0]
    assert REWARD(RESOURCES, []).tolist() == []


@pytest.mark.parametrize(
    "source, plain",
    [
        ("from typing import List\nimport math\ndef f(x: List[int]): return math.floor(x[0])", True),
        ("from collections import deque\nfor _ in range(3): pass", True),
        ("import math, sys", False),
        ("from collections import abc", False),
        ("from . import math", False),
        ("import re", False),
        ("g.gi_frame", False),
        ("match x:\n case object(__class__=c): pass", False),
        ("getattr(f, 'x')", False),
        ("match '{0.x}':\n case str(format=g): pass", False),
        ("'{} {:.2f} {0:>3}'.format(1, 2)", True),
        ("f'{x:.2f}'", True),
        ("'{0.x}'.format(f)", False),
        ("'{0[x]}'.format(f)", False),
        ("'{0:{1.x}}'.format(f, g)", False),
        ("s.format(f)", False),
        ("str.format_map('', f)", False),
        ("def f(:", False),
        ("1\n" * 20_000, False),
    ],
)
def test_plain_code_reaches_nothing(source: str, plain: bool) -> None:
    assert is_plain(source) is plain


def test_lines_of_functions_are_counted_and_heads_are_not() -> None:
    source = "import math\n\ndef f(x):\n    if x > 5:\n        return x\n    return -x\n"
    assert lines_of(compile(source, "p", "exec")) == {4, 5, 6}


@pytest.mark.rotating(of=6)
def test_demonstrations_are_what_their_flaw_says_and_every_way_of_a_step_does_it() -> None:
    settings = ProgramsSettings(problems={}, wrong=0.5, slow=0.5)
    random, grades = Random(0), UnitTests(sandbox=SANDBOX)
    seen = set()
    for _ in range(12):
        task = settings.draw(random)
        flaw, (text,) = settings.demonstrate(random, task)
        problem = Problem("p", task.prompt, task.answer, tests=task.tests, entry_point=task.entry_point)
        (value,) = grades(RESOURCES, [_rollout(text, problem)]).tolist()
        (speed,) = REWARD(RESOURCES, [_rollout(text, problem)]).tolist()
        seen.add(flaw)
        if flaw != "wrong":
            assert value == 1.0 and (speed == 1.0) == (flaw == "none")
    assert seen == {"none", "slow", "wrong"}
    steps: list[Step] = [("times", 3), ("least", 4)]
    assert read('def f ( x ) : " times 3 , at least 4 " ;') == steps
    assert [result(steps, x) for x in INPUTS] == [4, 6, 90]
    assert set(SLOW) < set(QUICK)
