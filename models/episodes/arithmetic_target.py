"""The game of reaching a number: an expression of given numbers, each of them used exactly once, that has a value."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from fractions import Fraction

from models.tool.calculator import exact_value, parsed

LONGEST = 80
"""Characters of an expression."""
_SIGNS = (ast.Add, ast.Sub, ast.Mult, ast.Div)


def value_of(text: str, numbers: Sequence[int]) -> Fraction:
    """The value of an expression, exact.

    Args:
        text: with + - * / and brackets; what stands behind an equals sign does not count.
        numbers: all of them must be used, as often as they are given.

    Raises:
        ValueError: it is no such expression; the text says why.
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
