"""Completions a second that each verifier by rule processes on one core.

A round of completions as policies write them: a few right, a few wrong, some without an answer, workings of a hundred
words. The limit is the target for exact answers, choices, forms and lengths; the others are only measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import psutil

from benchmarks.shared.rows import Row, compare
from benchmarks.shared.settings import Settings
from models.method.problem import Problem
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout
from models.parts.rewards.code.sql import Sql
from models.parts.rewards.code.style_of_tests import StyleOfTests
from models.parts.rewards.code.unit_tests import UnitTests
from models.parts.rewards.code.written_tests import WrittenTests
from models.parts.rewards.judges.claim_support import ClaimSupport
from models.parts.rewards.rules.abstention import Abstention
from models.parts.rewards.rules.choice import Choice
from models.parts.rewards.rules.constraints import ConstraintsMet
from models.parts.rewards.rules.exact_answer import ExactAnswer
from models.parts.rewards.rules.logic import Logic
from models.parts.rewards.rules.math_verify import MathVerify
from models.parts.rewards.rules.search_results import SearchResults
from models.parts.rewards.rules.similarity import Similarity
from models.parts.rewards.shaping.form_and_length import FormAndLength
from models.parts.rewards.shaping.length_penalty import LengthPenalty
from models.sandbox.settings import SandboxSettings

TARGET = 20_000
"""Target of completions a second on one core."""
ROUND, GROUP, WORDS = 4096, 8, 100
"""Completions of a round and of a prompt, and words of a working."""
RESOURCES = cast(RunResources, SimpleNamespace(learner=SimpleNamespace(updates=0)))
"""Resources without models; rules read only the number of the policy's updates."""


Statement = Callable[[int], str]
"""Statement of a completion, by its number: every number has its own text, so that cached results are not used."""


@dataclass(frozen=True)
class Case:
    """A verifier, the problem of all its completions, and their statements."""

    reward: Reward
    problem: Problem
    said: Statement
    marked: bool = False
    """Whether there is a target."""
    working: str = "take 3 and 4 ; 3 + 4 = 7 ; " * (WORDS // 11)
    """Text before the answer."""
    round: int = ROUND
    """Completions of a round."""
    sandboxed: bool = False
    """Whether a worker of the sandbox does the work: then wall time counts, as its processes come and go."""


def answered(answer: str, prompt: str = "") -> Problem:
    """Make a problem with an answer alone."""
    return Problem("p", prompt, answer)


def in_turn(statements: Sequence[str]) -> Statement:
    """Return the statements one after the other, cyclically."""
    return lambda number: statements[number % len(statements)]


CONSTRAINTS = (
    '{"constraints": [{"kind": "words", "most": 200}, {"kind": "contains", "text": "take"}, {"kind": "lower"},'
    ' {"kind": "forbids", "text": "sea"}]}'
)
DOCUMENTS = Path(__file__).resolve().parents[2] / "recipes" / "documents"
NUMBERS = in_turn(("#### 1,234", "#### 1233", "so \\boxed{1234.0}", "nobody knows"))
TESTS = in_turn(
    tuple(
        f"\n```python\n{statement}\n```"
        for statement in ("assert f(2) == 5", "print(f(2))", "assert f(2", "assert True")
    )
)
EXPRESSIONS = in_turn(tuple(f"#### {text}" for n in range(64) for text in (f"{n}x + 6", f"6 + {n} x")))
OPTIONS = in_turn(("#### B", "#### (c)", "#### option b) 12", "B or C"))
CLASSES = in_turn(("sports", "Politics", "**sports**", "sports or politics"))
SEARCHES = in_turn(("red umbrella", "umbrella boots", "pan", "umbrella umbrella"))
FORMULAS = in_turn(
    tuple(f"#### {text}" for n in range(64) for text in (f"forall x (~ p{n}(x) | q(x))", f"forall x (q(x) -> p{n}(x))"))
)
ONE_WORKER = SandboxSettings(workers=1)
TABLE = "create table t (n integer, name text);" + "".join(f"insert into t values ({n}, 'n{n}');" for n in range(20))
OF_DATABASE = Problem("p", "", "select name from t where n > 3", tests=TABLE)
SQUARES = Problem(
    "p", "", "def f(x):\n    return x * x", tests="def check(f):\n    assert f(3) == 9\n    assert f(-2) == 4\n",
    entry_point="f",
)  # fmt: skip
CASES = {
    "exact_answer": Case(ExactAnswer(), answered("1234"), NUMBERS, marked=True),
    "length_penalty": Case(LengthPenalty(), answered("1234"), NUMBERS, marked=True),
    "choice, of options": Case(Choice(), answered("B"), OPTIONS, marked=True),
    "choice, of classes": Case(
        Choice(labels=("sports", "politics"), reads="whole"), answered("sports"), CLASSES, marked=True, working=""
    ),
    "form_and_length": Case(FormAndLength(length_after=0), answered("1234"), NUMBERS, marked=True),
    "math_verify, of numbers": Case(MathVerify(), answered("1234"), NUMBERS),
    "math_verify, of expressions": Case(MathVerify(), answered("2x + 6"), EXPRESSIONS),
    "constraints": Case(ConstraintsMet(), answered(CONSTRAINTS), NUMBERS),
    "abstention": Case(Abstention(), answered("1234"), NUMBERS),
    "claim_support": Case(ClaimSupport(documents=str(DOCUMENTS / "passages.jsonl")), answered(""), NUMBERS),
    "style_of_tests": Case(StyleOfTests(), answered(""), TESTS),
    "similarity": Case(Similarity(), answered("the river is red"), in_turn(("#### a red river", "#### 12", "none"))),
    "search_results": Case(
        SearchResults(documents=str(DOCUMENTS / "expansions.jsonl")),
        answered('{"wants": ["supu umbrella", "supu boots"]}', "supu rain"),
        SEARCHES,
        working="",
    ),
    "logic": Case(Logic(), answered("forall x (p3(x) -> q(x))"), FORMULAS),
    "sql, in the sandbox": Case(
        Sql(sandbox=ONE_WORKER),
        OF_DATABASE,
        lambda number: f"select name from t where n > {number % 5} -- {number}",
        working="",
        round=512,
        sandboxed=True,
    ),
    "unit_tests, in the sandbox": Case(
        UnitTests(sandbox=ONE_WORKER),
        SQUARES,
        lambda number: f"```python\ndef f(x):\n    return x * {('x', 3)[number % 2]}  # {number}\n```",
        working="",
        round=256,
        sandboxed=True,
    ),
    "written_tests, in the sandbox": Case(
        WrittenTests(sandbox=ONE_WORKER),
        SQUARES,
        lambda number: f"```python\nassert f({number}) == {number * number}\n```",
        working="",
        round=32,
        sandboxed=True,
    ),
}
"""Cases by the name of the verifier."""


def rollouts_of(case: Case, count: int, begin: int = 0) -> list[Rollout]:
    """Make a round for a verifier, of completions from number `begin` on."""
    problems = [replace(case.problem, id=f"p{number}") for number in range(-(-count // GROUP))]
    template = Rollout(problems[0], 0, (1,) * WORDS, None, "", True)
    return [
        replace(
            template,
            problem=problems[number // GROUP],
            completion=(1,) * (WORDS + number % 7),
            group=number // GROUP,
            text=f"{case.working}{case.said(begin + number)}",
        )
        for number in range(count)
    ]


def measure(settings: Settings, name: str) -> list[Row]:
    """Measure a row a verifier; `ours` are completions a second."""
    return [_row(settings, verifier, case) for verifier, case in CASES.items()]


def _row(settings: Settings, name: str, case: Case) -> Row:
    count = 16 if settings.quick else case.round
    rates = [
        _rate(case, rollouts_of(case, count, sample * count)) for sample in range(settings.warm + settings.samples)
    ][settings.warm :]
    row = compare(
        f"completions a second on one core: {name}",
        rates,
        [float(TARGET)] if case.marked else None,
        "completions/s",
        1.0 if case.marked else None,
        against="the limit",
        wanted=f"{TARGET:,}" if case.marked else "",
        details={"words": len(case.working.split())},
    )
    return row if case.marked else replace(row, reason="no limit was set")


def _rate(case: Case, rollouts: Sequence[Rollout]) -> float:
    spent = time.perf_counter if case.sandboxed else _spent
    began = spent()
    case.reward(RESOURCES, rollouts)
    return len(rollouts) / (spent() - began)


def _spent() -> float:
    """Return the processor seconds of this process and of those that compare expressions, other processes left out."""
    times = psutil.Process().children(recursive=True)
    return time.process_time() + sum(sum(child.cpu_times()[:2]) for child in times)
