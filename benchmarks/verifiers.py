"""Completions that each verifier by rule takes in a second of one core.

A round of completions as policies write them: a few right, a few wrong, some without an answer, workings of a hundred
words. The limit is what was set out for exact answers and lengths; the others are only measured.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import psutil

from benchmarks.rows import Row, compare
from benchmarks.settings import Settings
from models.loop.rollout import Problem, Rollout
from models.loop.slots import Reward
from models.loop.world import World
from models.rewards.abstention import Abstention
from models.rewards.claim_support import ClaimSupport
from models.rewards.constraints import ConstraintsMet
from models.rewards.exact_answer import ExactAnswer
from models.rewards.length_penalty import LengthPenalty
from models.rewards.math_verify import MathVerify
from models.rewards.similarity import Similarity
from models.rewards.style_of_tests import StyleOfTests

WANTED = 20_000
"""Completions a second on one core."""
ROUND, GROUP, WORDS = 4096, 8, 100
"""Completions of a round and of a prompt, and words of a working."""


@dataclass(frozen=True)
class Case:
    """A verifier, what it holds completions against, and what they state in turn."""

    reward: Reward
    answer: str
    stated: tuple[str, ...]
    marked: bool = True
    """Whether a mark is set out to be reached."""


ASKED = (
    '{"constraints": [{"kind": "words", "most": 200}, {"kind": "contains", "text": "take"}, {"kind": "lower"},'
    ' {"kind": "forbids", "text": "sea"}]}'
)
FACTS = Path(__file__).resolve().parents[1] / "recipes" / "documents" / "passages.jsonl"
NUMBERS = ("#### 1,234", "#### 1233", "so \\boxed{1234.0}", "nobody knows")
TESTS = tuple(f"\n```python\n{said}\n```" for said in ("assert f(2) == 5", "print(f(2))", "assert f(2", "assert True"))
EXPRESSIONS = tuple(f"#### {written}" for number in range(64) for written in (f"{number}x + 6", f"6 + {number} x"))
CASES = {
    "exact_answer": Case(ExactAnswer(), "1234", NUMBERS),
    "length_penalty": Case(LengthPenalty(), "1234", NUMBERS),
    "math_verify, of numbers": Case(MathVerify(), "1234", NUMBERS, marked=False),
    "math_verify, of expressions": Case(MathVerify(), "2x + 6", EXPRESSIONS, marked=False),
    "constraints": Case(ConstraintsMet(), ASKED, NUMBERS, marked=False),
    "abstention": Case(Abstention(), "1234", NUMBERS, marked=False),
    "claim_support": Case(ClaimSupport(documents=str(FACTS)), "", NUMBERS, marked=False),
    "style_of_tests": Case(StyleOfTests(), "", TESTS, marked=False),
    "similarity": Case(Similarity(), "the river is red", ("#### a red river", "#### 12", "none"), marked=False),
}
"""By the name of the verifier."""


def rollouts_of(case: Case, count: int) -> list[Rollout]:
    """A round for a verifier."""
    working = "take 3 and 4 ; 3 + 4 = 7 ; " * (WORDS // 11)
    problems = [Problem(f"p{number}", "", case.answer) for number in range(-(-count // GROUP))]
    made = Rollout(problems[0], 0, (1,) * WORDS, None, "", True)
    return [
        replace(
            made,
            problem=problems[number // GROUP],
            completion=(1,) * (WORDS + number % 7),
            group=number // GROUP,
            text=f"{working}{case.stated[number % len(case.stated)]}",
        )
        for number in range(count)
    ]


def measure(settings: Settings, name: str) -> list[Row]:
    """A row a verifier; `ours` are completions a second."""
    return [_row(settings, verifier, case) for verifier, case in CASES.items()]


def _row(settings: Settings, name: str, case: Case) -> Row:
    rollouts = rollouts_of(case, 64 if settings.quick else ROUND)
    rates = [_rate(case.reward, rollouts) for _ in range(settings.warm + settings.samples)][settings.warm :]
    made = compare(
        f"completions a second on one core: {name}",
        rates,
        [float(WANTED)] if case.marked else None,
        "completions/s",
        1.0 if case.marked else None,
        against="the limit",
        wanted=f"{WANTED:,}" if case.marked else "",
        details={"words": WORDS},
    )
    return made if case.marked else replace(made, reason="no limit was set")


def _rate(reward: Reward, rollouts: Sequence[Rollout]) -> float:
    began = _spent()
    reward(cast(World, None), rollouts)  # rules read no models
    return len(rollouts) / (_spent() - began)


def _spent() -> float:
    """Seconds of the processor that this process and those that compare expressions have had, whoever else uses it."""
    times = psutil.Process().children(recursive=True)
    return time.process_time() + sum(sum(child.cpu_times()[:2]) for child in times)
