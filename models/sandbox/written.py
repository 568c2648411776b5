"""The code that a completion writes: a block, a function, or the rest of one that the prompt begins."""

from __future__ import annotations

import ast
import re

from models.answers.answers import extract_answer
from models.answers.marked_answers import without_reasoning
from models.method.attempt import Attempt
from models.sandbox.sandbox import Program

_BLOCK = re.compile(
    r"^[ \t]*```[ \t]*(?:(?:python|py|python3|verilog|systemverilog|v|sv)[ \t]*)?\r?\n(.*?)^[ \t]*```",
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)
LONGEST_VALUE = 2_000
"""Largest number of characters of a stated value."""


def written_program(prompt: str, completion: str, entry_point: str) -> str:
    """Return the program: of several blocks of code the last that defines the function, else the last.

    A prompt that is Python is put before it, for its imports and helpers: the completion continues from its end, or
    defines the function again.

    Args:
        prompt: what the policy read.
        completion: what it wrote.
        entry_point: name of the requested function.
    """
    defines = re.compile(rf"^(?:async[ \t]+)?def[ \t]+{re.escape(entry_point)}\b", re.MULTILINE)
    completion = without_reasoning(completion)
    blocks: list[str] = _BLOCK.findall(completion)
    with_function = [block for block in blocks if defines.search(block)]
    code = (with_function or blocks or [completion])[-1]
    if not _is_python(prompt):
        return code
    return f"{prompt}\n{code}" if defines.search(code) else f"{prompt}{code}"


def written_code(completion: str) -> str:
    """Return the last block of code, or the whole completion if it has none; never text in reasoning tags."""
    completion = without_reasoning(completion)
    blocks: list[str] = _BLOCK.findall(completion)
    return blocks[-1] if blocks else completion


def written_circuit(prompt: str, completion: str) -> str:
    """Return the Verilog: the last block of code, or all; it continues the prompt unless it begins a module."""
    code = written_code(completion)
    if re.search(r"\bmodule\b", code):
        return code
    begun = [match.start() for match in re.finditer(r"\bmodule\b", prompt)]
    return f"{prompt[begun[-1] :]}\n{code}" if begun else code


def written_value(completion: str) -> str | None:
    """Return Python of the value that a completion states: a literal unchanged, other words as text; None: no value."""
    stated = extract_answer(completion)
    if stated is None or not stated.strip() or len(stated) > LONGEST_VALUE:
        return None
    try:
        return repr(ast.literal_eval(stated.strip()))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return repr(stated.strip())


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def program_of(attempt: Attempt) -> Program | None:
    """Return the program to run; None if the completion was cut, or the problem has no tests."""
    problem = attempt.problem
    if not attempt.finished or not problem.tests.strip():
        return None
    source = written_program(problem.prompt, attempt.text, problem.entry_point)
    return Program(source, problem.tests, problem.entry_point, problem.prompt)
