"""A calculator: whole numbers, decimals and fractions, exact (a tool as in Toolformer, arXiv 2302.04761).

47 * 83        3901
(1 + 2) / 8    0.375
1 / 3          1/3
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable
from fractions import Fraction

from models.base.bounds import Positive
from models.method.registry import part
from models.method.tool import Tool, ToolError

_BINARY: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction | int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_LARGEST = Fraction(10) ** 60
"""Largest number; larger ones are refused, because their arithmetic may take long."""


@part("calculator")
class Calculator(Tool):
    """A calculator for one arithmetic expression."""

    usage = "an expression of numbers with + - * / // % and brackets"
    longest: Positive = 200
    """Maximum length of an expression, characters."""

    def call(self, argument: str) -> str:
        """Return the value of the expression: a whole number, a terminating decimal, or a fraction."""
        text = argument.strip().removesuffix("=").strip()
        if len(text) > self.longest:
            raise ToolError(f"the expression is longer than {self.longest} characters")
        try:
            value = exact_value(parsed(text.replace("×", "*").replace("÷", "/")))
        except ZeroDivisionError:
            raise ToolError("division by zero") from None
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise ToolError("not an expression of numbers with + - * / // % and brackets") from None
        return written(value)


def parsed(text: str) -> ast.expr:
    """Parse an expression to a tree, without running it.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: it is not an expression, or is nested too deeply.
    """
    with warnings.catch_warnings(action="ignore"):  # warnings about the policy's text, such as 1if
        return ast.parse(text, mode="eval").body


def exact_value(node: ast.expr) -> Fraction:
    """Return the exact value of an expression.

    Raises:
        ValueError: it holds anything but numbers, + - * / // % and brackets, or becomes too large.
        ZeroDivisionError: it divides by zero.
    """
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            value = Fraction(str(number))
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            value = -exact_value(inner)
        case ast.UnaryOp(op=ast.UAdd(), operand=inner):
            value = exact_value(inner)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _BINARY:
            value = Fraction(_BINARY[type(sign)](exact_value(left), exact_value(right)))
        case _:
            raise ValueError
    if abs(value) > _LARGEST or value.denominator > _LARGEST:
        raise ValueError
    return value


def written(value: Fraction) -> str:
    """Format a number as a whole number, a terminating decimal, or a fraction."""
    if value.denominator == 1:
        return str(value.numerator)
    rest, places = value.denominator, 0
    for prime in (2, 5):
        count = 0
        while rest % prime == 0:
            rest //= prime
            count += 1
        places = max(places, count)
    if rest != 1 or places > 12:
        return f"{value.numerator}/{value.denominator}"
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    return f"{'-' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}"
