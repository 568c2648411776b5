"""The game of reaching a number by an expression that uses each of the given numbers exactly once."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from fractions import Fraction

from models.agents.tools.calculator import exact_value, parsed

LONGEST = 80
"""Maximum length of an expression, characters."""
_SIGNS = (ast.Add, ast.Sub, ast.Mult, ast.Div)


def value_of(text: str, numbers: Sequence[int]) -> Fraction:
    """Return the exact value of an expression.

    Args:
        text: expression with + - * / and brackets; text after an equals sign is ignored.
        numbers: all of them must be used, as often as they are given.

    Raises:
        ValueError: it is not such an expression; the message gives the reason.
    """
    expression = text.split("=")[0].strip()
    if len(expression) > LONGEST:
        raise ValueError("too long")
    try:
        tree = parsed(expression)
        used = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and type(node.value) is int:
                used.append(node.value)
            elif not (isinstance(node, ast.BinOp) and isinstance(node.op, _SIGNS)) and not isinstance(node, _SIGNS):
                raise ValueError("not an expression")
        value = exact_value(tree)
    except ZeroDivisionError:
        raise ValueError("division by zero") from None
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError("not an expression") from None
    if sorted(used) != sorted(numbers):
        raise ValueError("use each number once")
    return value
