"""One where the stated answer is the same mathematics as the problem's, by math-verify (Hugging Face, 0.9).

    6 + 2x = 2x + 6 = 2(x + 3),   \\frac{\\sqrt{8}}{2} = \\sqrt{2},   {2, 1} = {1, 2},   x = 5 for 5

The answer is read where `exact_answer` reads it, and what that rule calls the same is the same. Two numbers are held
against each other exactly, by that rule alone, and an answer that is a word or a text as well: to SymPy `Paris` is a
product of letters, and the same as `sirap`. Everything else is compared as LaTeX, in processes that are ended where
they hang. The same rule decides in evaluations and at the gate.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from models.errors import UserError
from models.loop.attempt import Attempt
from models.loop.rollout import Rollout
from models.loop.slots import Reward
from models.loop.world import World
from models.parts import part
from models.text.answers import answer_kind, extract_answer, same_answer
from models.text.expression_workers import Pair, can_compare, shared_workers

LONGEST = 400
"""Characters of an answer beyond which it is no expression that anybody asked for."""
_WORDS = re.compile(r"[^\W\d_]{2,}(?:[\s,.'-]+[^\W\d_]+)*[.]?")
"""Answers of letters alone."""
_ASSIGNMENT = re.compile(r"\s*([A-Za-z](?:_\w|_\{\w{1,9}\})?)\s*=([^=<>]+)")
_BETWEEN = re.compile(r"[,;]|\\quad|\\text\{\s*and\s*\}|\band\b")
_TUPLE = re.compile(r"\s*\(.*\)\s*", re.DOTALL)


@part("math_verify")
class MathVerify(Reward):
    """Verifier of mathematical answers, whatever way they are written."""

    needs_answers = True
    verifies = True
    seconds: Annotated[int, Field(ge=1, le=60)] = 2
    """That reading an answer, reading the problem's, and comparing them may take, each; what takes longer is wrong."""

    def try_out(self) -> None:
        """Raise a UserError where math-verify is missing."""
        if not can_compare():
            raise UserError(f"rewards.{self.label}: the package math-verify is not installed")

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """One or zero for each completion, [completions]."""
        attempts = [Attempt.of(rollout) for rollout in rollouts]
        return torch.tensor([float(right) for right in self.right(attempts)])

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Which attempts end and state what is the same as the answers of their problems, [attempts]."""
        stated = [extract_answer(text) if finished else None for _, text, finished in attempts]
        each = [parts(given or "", problem.answer) for given, (problem, _, _) in zip(stated, attempts, strict=True)]
        pairs = [pair for some in each for pair in some]
        verdicts = [same_answer(given, expected) for given, expected in pairs]
        doubtful = [number for number, pair in enumerate(pairs) if not verdicts[number] and is_doubtful(pair)]
        if doubtful:
            compared = shared_workers(self.seconds).same([pairs[number] for number in doubtful])
            for number, verdict in zip(doubtful, compared, strict=True):
                verdicts[number] = verdict
        said = iter(verdicts)
        by_attempt = [[next(said) for _ in some] for some in each]
        return [bool(some) and all(some) for some in by_attempt]


def parts(given: str, expected: str) -> list[Pair]:
    """The pairs that must all be the same: value by value where several names have theirs, as in `x = 6, y = 5`, which
    math-verify takes for the set of the values; none where the names differ. `(6, 5)` is compared as it is."""
    wanted = _assigned(expected)
    if wanted is None or _TUPLE.fullmatch(given):
        return [(given, expected)]
    named = _assigned(given) or {}
    return [(named[name], wanted[name]) for name in wanted] if named.keys() == wanted.keys() else []


def _assigned(text: str) -> dict[str, str] | None:
    """Values by name, where a text gives two names or more one each; None otherwise."""
    if len(text) > LONGEST or text.count("=") < 2:
        return None
    every = [_ASSIGNMENT.fullmatch(part) for part in _BETWEEN.split(text.replace("$", " "))]
    values = {match[1]: match[2].strip() for match in every if match is not None}
    return values if len(values) == len(every) > 1 else None


def is_doubtful(pair: Pair) -> bool:
    """Whether the exact rule, which calls them different, may be mistaken: neither two numbers nor words."""
    if not all(text.strip() and len(text) <= LONGEST for text in pair):
        return False
    if any(_WORDS.fullmatch(text.strip()) for text in pair):
        return False
    return not all(answer_kind(text).endswith("number") for text in pair)
