"""Multi-step integer problems, their worked solutions, and the three kinds of flaw in a solution.

    prompt      Start with 7 . Add 5 . Take away 3 . Double it .
    solution    7 + 5 = 12 ; 12 - 3 = 9 ; 9 * 2 = 18 ; #### 18

Tokens are separated by single spaces and a negative number is one token, so that a word-level tokenizer reproduces the
text unchanged. The level of a problem is its number of operations. A flawed solution has one kind of flaw:

    operand_skipped   one operation is left out, and the working continues without it
    sign_lost         every result below zero is written without its sign, and the working continues from that value
    slip              one result is off by 1, 2 or 3, and the working continues from it

A flawed working always ends in a different answer from the sound one: a skipped operation must change the value; the
other two introduce a difference that no later operation can remove (adding keeps it, doubling doubles it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from typing import Literal, get_args

OperationName = Literal["add", "take_away", "double"]
Flaw = Literal["operand_skipped", "sign_lost", "slip"]

OPERATIONS: tuple[OperationName, ...] = get_args(OperationName)
FLAWS: tuple[Flaw, ...] = get_args(Flaw)
SOUND = "none"
SLIPS = (-3, -2, -1, 1, 2, 3)


@dataclass(frozen=True, slots=True)
class Operation:
    """One step of a problem. `operand` is 2 for doubling."""

    name: OperationName
    operand: int

    def apply(self, value: int) -> int:
        """Return the value after the step."""
        if self.name == "add":
            return value + self.operand
        return value - self.operand if self.name == "take_away" else value * self.operand

    @property
    def words(self) -> str:
        """The step in the words of the prompt."""
        if self.name == "double":
            return "Double it ."
        return f"{'Add' if self.name == 'add' else 'Take away'} {self.operand} ."

    @property
    def symbol(self) -> str:
        """The operator symbol of the step in a working."""
        return {"add": "+", "take_away": "-", "double": "*"}[self.name]


@dataclass(frozen=True, slots=True)
class ArithmeticProblem:
    """A start value and the operations on it."""

    start: int
    operations: tuple[Operation, ...]

    @property
    def level(self) -> int:
        """Difficulty: the number of operations."""
        return len(self.operations)

    @property
    def prompt(self) -> str:
        """The problem in words."""
        return " ".join([f"Start with {self.start} .", *(operation.words for operation in self.operations)])


@dataclass(frozen=True, slots=True)
class WorkingLine:
    """One line of a working: `left operation = result`, where the result may be wrong."""

    left: int
    operation: Operation
    result: int

    @property
    def text(self) -> str:
        """The written line, such as `12 - 3 = 9`."""
        return f"{self.left} {self.operation.symbol} {self.operation.operand} = {self.result}"


@dataclass(frozen=True, slots=True)
class Working:
    """A worked solution: its lines, at least one."""

    lines: tuple[WorkingLine, ...]

    @property
    def values(self) -> tuple[int, ...]:
        """The written results, in order."""
        return tuple(line.result for line in self.lines)

    @property
    def answer(self) -> int:
        """The last written result."""
        return self.lines[-1].result

    @property
    def text(self) -> str:
        """The working as a completion, with the answer after `####`."""
        return " ; ".join([*(line.text for line in self.lines), f"#### {self.answer}"])

    def within(self, lowest: int, highest: int) -> bool:
        """Return whether every written result is in the range, both ends included."""
        return all(lowest <= value <= highest for value in self.values)


def work(problem: ArithmeticProblem, write: Callable[[int, int], int] = lambda position, result: result) -> Working:
    """Work the problem line by line; `write(position, result)` returns the value that is written for a result."""
    lines = []
    value = problem.start
    for position, operation in enumerate(problem.operations):
        written = write(position, operation.apply(value))
        lines.append(WorkingLine(value, operation, written))
        value = written
    return Working(tuple(lines))


def operand_skipped(problem: ArithmeticProblem) -> Iterator[Working]:
    """Yield every working that leaves out one operation that would have changed the value; nothing at level 1."""
    if problem.level < 2:
        return
    value = problem.start
    for position, operation in enumerate(problem.operations):
        if operation.apply(value) != value:
            rest = problem.operations[:position] + problem.operations[position + 1 :]
            yield work(ArithmeticProblem(problem.start, rest))
        value = operation.apply(value)


def sign_lost(problem: ArithmeticProblem) -> Iterator[Working]:
    """Yield the one working without minus signs before results; nothing if no result is below zero."""
    if min(work(problem).values) < 0:
        yield work(problem, lambda position, result: abs(result))


def slip(problem: ArithmeticProblem) -> Iterator[Working]:
    """Yield every working with one result off by 1, 2 or 3, except the one that is a lost sign (-1 written as 1)."""
    lost = tuple(sign_lost(problem))
    for wrong, error in product(range(problem.level), SLIPS):
        working = work(problem, partial(_off_by, wrong, error))
        if working not in lost:
            yield working


def _off_by(wrong: int, error: int, position: int, result: int) -> int:
    return result + error if position == wrong else result


@lru_cache(maxsize=65536)
def flawed(problem: ArithmeticProblem, flaw: Flaw, lowest: int, highest: int) -> tuple[Working, ...]:
    """Return the distinct workings of the problem with that flaw and all results in the range; may be empty."""
    kinds = {"operand_skipped": operand_skipped, "sign_lost": sign_lost, "slip": slip}
    # Leaving out either of two equal adjacent operations gives the same working, which counts once.
    return tuple(working for working in dict.fromkeys(kinds[flaw](problem)) if working.within(lowest, highest))
