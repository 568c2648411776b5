"""One where the stated answer is the same mathematics as the problem's, by math-verify (Hugging Face, 0.9).

    6 + 2x = 2x + 6 = 2(x + 3),   \\frac{\\sqrt{8}}{2} = \\sqrt{2},   {2, 1} = {1, 2},   x = 5 for 5

The answer is read where `exact_answer` reads it, and must be worked out: SymPy would do what the policy left undone.

- Where the right answer is a number, only a number is the same, written out: an integer, a decimal, a fraction, a mixed
  number, one in scientific notation. They are held against each other exactly. 17 \\times 23 is not 391.
- Where it is an expression, one that holds an operation which the right one does not, as \\int or \\frac{d}{dx}, is
  wrong: `models.text.undone`. Equivalent algebra stays right, so a task that asks to expand or to factor wants another
  verifier.
- Where the answer says a relation, it is read as `models.text.relations` says: x = 5 for 5, but not 1 = 2 = 5.
- An answer that is a word or a text is compared as text: to SymPy `Paris` is a product of letters, the same as `sirap`.

Everything else is compared as LaTeX, in processes that are ended where they hang. The same rule decides in evaluations
and at the gate.
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
from models.loop.rollout import Problem, Rollout
from models.loop.slots import Reward
from models.loop.world import World
from models.parts import part
from models.text.answers import expected_answer, extract_answer, same_text
from models.text.expression_workers import Pair, can_compare, shared_workers
from models.text.numerals import LONGEST, numeral, same_numeral, without_unit
from models.text.relations import stated_pairs
from models.text.signs import plain_signs
from models.text.undone import leaves_undone

_WORDS = re.compile(r"[^\W\d_]{2,}(?:[\s,.'-]+[^\W\d_]+)*[.]?")
"""Answers of letters alone."""


@part("math_verify")
class MathVerify(Reward):
    """Verifier of mathematical answers, whatever way they are written."""

    needs_answers = True
    verifies = True
    by_wording = True
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

    def stated(self, problem: Problem) -> str:
        """Return the answer in a box, which holds several lines too."""
        return f"\\boxed{{{expected_answer(problem.answer)}}}"

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Which attempts end and state what is the same as the answers of their problems, [attempts]."""
        stated = [extract_answer(text) if finished else None for _, text, finished in attempts]
        each = [
            to_compare(plain_signs(given or ""), plain_signs(expected_answer(problem.answer)))
            for given, (problem, _, _) in zip(stated, attempts, strict=True)
        ]
        pairs = [pair for some in each for pair in some]
        verdicts = [is_plainly_same(pair) for pair in pairs]
        doubtful = [number for number, pair in enumerate(pairs) if not verdicts[number] and is_doubtful(pair)]
        if doubtful:
            bare = [(without_unit(given), without_unit(expected)) for given, expected in (pairs[n] for n in doubtful)]
            compared = shared_workers(self.seconds).same(bare)
            for number, verdict in zip(doubtful, compared, strict=True):
                verdicts[number] = verdict
        said = iter(verdicts)
        by_attempt = [[next(said) for _ in some] for some in each]
        return [bool(some) and all(some) for some in by_attempt]


def to_compare(given: str, expected: str) -> list[Pair]:
    """The pairs that must all be the same; none where the answer is wrong by its form."""
    if not given.strip() or max(len(given), len(expected)) > LONGEST or is_plainly_same((given, expected)):
        return [(given, expected)]
    return stated_pairs(given, expected)


def is_plainly_same(pair: Pair) -> bool:
    """Whether two answers are the same text, or exactly the same number."""
    given, expected = pair
    if same_text(given, expected):
        return True
    said, wanted = numeral(given), numeral(expected)
    return said is not None and wanted is not None and same_numeral(said, wanted)


def is_doubtful(pair: Pair) -> bool:
    """Whether two answers that are not plainly the same may be so as mathematics: the right one is no number, neither
    is of words, and the answer leaves nothing to be worked out."""
    given, expected = pair
    if not all(text.strip() and len(text) <= LONGEST for text in pair):
        return False
    if numeral(expected) is not None or any(_WORDS.fullmatch(text.strip()) for text in pair):
        return False
    return not leaves_undone(given, expected)
