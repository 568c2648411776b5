"""Unusual completions for tests of rule-based rewards: each must get a value, and the run must continue."""

from models.method.problem import Problem
from models.method.rollout import Rollout

TEXTS = [
    "",
    " \n\t ",
    "####",
    "#### ",
    "\\boxed{",
    "\x00\ud800\uffff",
    "\u202e7\u202c",
    "9" * 100_000,
    "#### " + "x" * 100_000,
    "#### 7 " * 5_000,
    "(" * 50_000,
    "a " * 50_000,
    '{"a": [1, {"b": null}]}',
    "[[[[" * 1_000,
    "#### None",
    "#### 1e999",
    "#### (((B)))",
    "The answer is " * 2_000,
]
"""Empty, truncated, binary, right-to-left, very long, deeply nested, and of another type than the expected one."""


def rollout(text: str, problem: Problem, *, finished: bool = True, tokens: int = 1, group: int = 0) -> Rollout:
    """Return a completion of one turn."""
    return Rollout(problem, group, (1,) * tokens, None, text, finished)


def malformed(problem: Problem) -> list[Rollout]:
    """Return each text twice as a completion of a problem: finished and truncated."""
    return [rollout(text, problem, finished=ended) for text in TEXTS for ended in (True, False)]
