"""The program that a completion writes: a block of code, a function, or the rest of one that the prompt begins."""

from __future__ import annotations

import ast
import re

_BLOCK = re.compile(
    r"^[ \t]*```[ \t]*(?:python|py|python3)?[ \t]*\r?\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE | re.IGNORECASE
)


def written_program(prompt: str, completion: str, entry_point: str) -> str:
    """The program: of several blocks of code the last that defines the function, else the last.

    A prompt that is Python stands before it, for its imports and helpers: the completion goes on where it ends, or
    defines the function anew.

    Args:
        prompt: what the policy read.
        completion: what it wrote.
        entry_point: name of the function that is asked for.
    """
    defines = re.compile(rf"^(?:async[ \t]+)?def[ \t]+{re.escape(entry_point)}\b", re.MULTILINE)
    blocks: list[str] = _BLOCK.findall(completion)
    with_function = [block for block in blocks if defines.search(block)]
    code = (with_function or blocks or [completion])[-1]
    if not _is_python(prompt):
        return code
    return f"{prompt}\n{code}" if defines.search(code) else f"{prompt}{code}"


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
