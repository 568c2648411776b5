"""Texts that prepare a problem for a solver: hints, worked examples, and sub-questions with their answers.

form        "{prompt}\\nHint: {prepared}"      what the solver reads; with nothing prepared, the prompt alone
pool        {"prompt": ..., "solution": ...}  one worked example per line of a JSONL file, numbered from 1
steps       7 + 5 = 12 ; 12 - 3 = 9 ; #### 9   the parts of a solution before its answer
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from models.answers.answers import extract_answer, same_answer
from models.answers.exact import is_right
from models.base.errors import UserError
from models.base.source_code import GivenFile
from models.base.strict_json import JsonError, parse_json

_PLACE = re.compile(r"\{(prompt|prepared|question)\}")
_AROUND = ".,;:!?()[]{}\"'"
"""Signs around a word that are not part of it."""


class WorkedExample(NamedTuple):
    """A problem with its solution."""

    prompt: str
    solution: str
    right: bool = True
    """Whether the solution has no flaw."""


def check_form(form: str, needed: Collection[str], setting: str) -> None:
    """Check that a form has each of the needed places exactly once, and no other.

    Raises:
        UserError: one is missing, or occurs twice.
    """
    places = _PLACE.findall(form)
    if sorted(places) != sorted(needed):
        wanted = " and ".join(f"{{{name}}}" for name in needed)
        raise UserError(f"{setting}: {form!r} must contain {wanted}, each once; change it")


def filled(form: str, values: Mapping[str, str]) -> str:
    """Fill in the places of a form. Inserted texts are not searched for places."""
    return _PLACE.sub(lambda place: values[place.group(1)], form)


def with_prepared(form: str, prompt: str, prepared: str) -> str:
    """Return the text that the solver reads: the form filled in, or the prompt alone if nothing was prepared."""
    return filled(form, {"prompt": prompt, "prepared": prepared}) if prepared else prompt


@lru_cache(maxsize=8)
def read_pool(given: GivenFile, setting: str) -> tuple[WorkedExample, ...]:
    """Read a pool of worked examples.

    Args:
        given: a JSONL file with `prompt` and `solution` in each line.
        setting: key of the recipe that names the file, for the error message.

    Raises:
        UserError: a line is not a worked example, or the file is empty.
    """
    pool = [_example(line, place) for place, line in given.lines(setting)]
    if not pool:
        raise UserError(f"{setting}: {given.file} holds no worked examples; add lines with prompt and solution")
    return tuple(pool)


def _example(line: str, where: str) -> WorkedExample:
    try:
        row = parse_json(line)
    except JsonError as error:
        raise UserError(f"{where}: {error}") from None
    texts = [row.get(key) for key in ("prompt", "solution")] if isinstance(row, dict) else []
    right = row.get("right", True) if isinstance(row, dict) else None
    if not texts or not all(isinstance(text, str) and text.strip() for text in texts) or not isinstance(right, bool):
        raise UserError(
            f'{where}: a worked example is {{"prompt": text, "solution": text, "right": true or false, optional}}'
        )
    return WorkedExample(str(texts[0]), str(texts[1]), right)


def read_choice(turn: str, size: int, count: int) -> tuple[int, ...] | None:
    """Read the numbers of worked examples in a turn, separated by spaces or commas, in the turn's order.

    Args:
        turn: the policy's text.
        size: number of examples in the pool; they are numbered from 1.
        count: number of examples that the turn must name.

    Returns:
        The numbers; None if the turn does not name exactly `count` different examples of the pool.
    """
    words = turn.replace(",", " ").split()
    if len(words) != count or not all(word.isascii() and word.isdecimal() and len(word) < 10 for word in words):
        return None
    numbers = tuple(map(int, words))
    return numbers if len(set(numbers)) == count and all(1 <= number <= size for number in numbers) else None


def shown_examples(pool: Sequence[WorkedExample], numbers: Sequence[int], between: str) -> str:
    """Write worked examples as a text, each problem with its solution; `between` separates the examples."""
    return between.join(f"{pool[number - 1].prompt}\n{pool[number - 1].solution}" for number in numbers)


def steps_of(solution: str, between: str) -> list[str]:
    """Return the steps of a solution: its parts between `between`, up to the first that marks an answer."""
    steps: list[str] = []
    for step in solution.split(between):
        if extract_answer(step) is not None:
            break
        if step.strip():
            steps.append(step.strip())
    return steps


def sub_question(step: str) -> tuple[str, str] | None:
    """Split a step such as `7 + 5 = 12` into a sub-question, `7 + 5 =`, and its answer; None without an equals sign."""
    left, equals, result = step.rpartition("=")
    return (f"{left.strip()} =", result.strip()) if equals and left.strip() and result.strip() else None


def stated(answer: str) -> str:
    """Return the answer that a reply marks, or the reply itself if it marks none."""
    return extract_answer(answer) or answer.strip()


def gives_away(text: str, answer: str) -> bool:
    """Return whether a text marks a problem's answer, or has it as one of its words."""
    return is_right(text, answer, finished=True) or any(
        same_answer(word.strip(_AROUND), answer) for word in text.split()
    )
