"""Mathematical equality of the stated answer and the problem's, by math-verify (Hugging Face, 0.9): one or zero.

    6 + 2x = 2x + 6 = 2(x + 3),   \\frac{\\sqrt{8}}{2} = \\sqrt{2},   {2, 1} = {1, 2},   x = 5 for 5

The answer is read as by `exact_answer`, and must be worked out: SymPy would carry out operations that the policy left
undone.

- If the right answer is a number, only a number written out is equal: an integer, a decimal, a fraction, a mixed
  number, one in scientific notation. They are compared exactly. 17 \\times 23 is not 391.
- If it is an expression, an answer with an operation that the right one does not have, as \\int or \\frac{d}{dx}, is
  wrong: `models.answers.undone`. Equivalent algebra is right, so a task that asks to expand or to factor needs another
  verifier.
- If the answer is a relation, it is read by the rules of `models.answers.relations`: x = 5 for 5, but not 1 = 2 = 5.
- An answer that is a word or a text is compared as text: SymPy reads `Paris` as a product of letters, equal to `sirap`.

Everything else is compared as LaTeX, in processes with a time limit. The same rule decides in evaluations and at the
gate.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from models.answers.answers import expected_answer, extract_answer, same_text
from models.answers.expression_workers import Pair, can_compare, shared_workers
from models.answers.numerals import LONGEST, numeral, same_numeral, without_unit
from models.answers.relations import stated_pairs
from models.answers.undone import leaves_undone
from models.base.errors import UserError
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout
from models.text.signs import plain_signs

_WORDS = re.compile(r"[^\W\d_]{2,}(?:[\s,.'-]+[^\W\d_]+)*[.]?")
"""Answers of letters alone."""


@part("math_verify")
class MathVerify(Reward):
    """Verifier of mathematical answers, in any notation."""

    needs_answers = True
    verifies = True
    by_wording = True
    seconds: Annotated[int, Field(ge=1, le=60)] = 2
    """Time limit of reading an answer, of reading the problem's, and of comparing them, seconds each; an answer that
    takes longer is wrong."""

    def try_out(self) -> None:
        """Raise a UserError if math-verify is missing."""
        if not can_compare():
            raise UserError(f"rewards.{self.label}: the package math-verify is not installed")

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return one or zero for each completion, [completions]."""
        attempts = [Attempt.of(rollout) for rollout in rollouts]
        return torch.tensor([float(right) for right in self.right(attempts)])

    def stated(self, problem: Problem) -> str:
        """Return the answer in a box, which may contain several lines."""
        return f"\\boxed{{{expected_answer(problem.answer)}}}"

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Return whether each attempt ended and states an answer that is equal to its problem's, [attempts]."""
        stated = [extract_answer(text) if finished else None for _, text, finished in attempts]
        pair_lists = [
            to_compare(plain_signs(given or ""), plain_signs(expected_answer(problem.answer)))
            for given, (problem, _, _) in zip(stated, attempts, strict=True)
        ]
        pairs = [pair for pair_list in pair_lists for pair in pair_list]
        verdicts = [is_plainly_same(pair) for pair in pairs]
        doubtful = [number for number, pair in enumerate(pairs) if not verdicts[number] and is_doubtful(pair)]
        if doubtful:
            bare = [(without_unit(given), without_unit(expected)) for given, expected in (pairs[n] for n in doubtful)]
            compared = shared_workers(self.seconds).same(bare)
            for number, verdict in zip(doubtful, compared, strict=True):
                verdicts[number] = verdict
        results = iter(verdicts)
        by_attempt = [[next(results) for _ in pair_list] for pair_list in pair_lists]
        return [bool(pair_list) and all(pair_list) for pair_list in by_attempt]


def to_compare(given: str, expected: str) -> list[Pair]:
    """Return the pairs that must all be equal; none if the answer is wrong by its form."""
    if not given.strip() or max(len(given), len(expected)) > LONGEST or is_plainly_same((given, expected)):
        return [(given, expected)]
    return stated_pairs(given, expected)


def is_plainly_same(pair: Pair) -> bool:
    """Return whether two answers are the same text, or exactly the same number."""
    given, expected = pair
    if same_text(given, expected):
        return True
    given_number, expected_number = numeral(given), numeral(expected)
    return given_number is not None and expected_number is not None and same_numeral(given_number, expected_number)


def is_doubtful(pair: Pair) -> bool:
    """Return whether two answers that are not plainly the same may still be mathematically equal.

    They may if the right one is not a number, neither is in words, and the answer leaves nothing to be worked out.
    """
    given, expected = pair
    if not all(text.strip() and len(text) <= LONGEST for text in pair):
        return False
    if numeral(expected) is not None or any(_WORDS.fullmatch(text.strip()) for text in pair):
        return False
    return not leaves_undone(given, expected)
