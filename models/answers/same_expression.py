"""Mathematical equality of two answers, decided by math-verify in a process of its own.

math-verify parses LaTeX into SymPy (no text is ever evaluated as Python) and compares the results: expressions by
simplification, sets, intervals, matrices and relations by their own rules. It would round decimals to six digits, so
they are converted to exact fractions, and two values must agree relative to their size: 0.0 is not 10^{-8}. Its
time limits are signals, which only a main thread receives, and its computations may take any amount of memory. It
therefore runs as the main program of a process that `models.answers.expression_workers` starts and ends, and this file
imports no other module of the project. Units are not handled here: the texts have none.

Input and output are pipes: a line of JSON, `[[given, expected], ...]`; then one sign per pair, `1` or `0`, in order.
The very first sign is `r`, once the process is ready.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import resource
import signal
import sys
from dataclasses import replace
from typing import Any

MEMORY = 2 * 1024**3
"""Largest address space of a comparison, bytes."""
_DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl."""
_DIGITS, _RELATIVE = 30, 1e-12
"""Digits of the computed values, and their largest relative difference."""


def same_expression(given: str, expected: str, seconds: int) -> bool:
    """Return whether two texts are the same expression; one that cannot be parsed, or takes too long, is different.

    Args:
        given: given answer.
        expected: right answer; an equation in it, such as `x = 5`, may be answered by its value, and the other way
            round.
        seconds: limit of each of three steps: parsing the one, parsing the other, and comparing them.
    """
    try:
        from math_verify import verify

        read = [_parsed(text, seconds) for text in (expected, given)]
        return all(read) and bool(verify(*read, timeout_seconds=seconds)) and _agree(read[0][0], read[1][0])
    except Exception:  # any exception of SymPy
        return False
    except BaseException as error:  # math-verify's time limit, if its signal comes late
        if type(error).__name__ != "TimeoutException":
            raise
        return False


def _parsed(text: str, seconds: int) -> list[Any]:
    from math_verify import LatexExtractionConfig, parse

    plain = " ".join(text.replace("$", " ").replace("\\(", " ").replace("\\)", " ").split())
    if not plain:
        return []
    # its own parsing of units would take the last letters of 6ab, 2d and x + 2m for units
    latex = LatexExtractionConfig()
    latex = replace(latex, normalization_config=replace(latex.normalization_config, units=False))
    read = parse(f"${plain}$", [latex], fallback_mode="no_fallback", parsing_timeout=seconds)
    return [_exact(expression) for expression in read]


def _exact(expression: Any) -> Any:
    """Return the expression with its decimals as fractions."""
    from sympy import Float, Rational

    decimals = expression.atoms(Float)
    return expression.xreplace({each: Rational(str(each)) for each in decimals}) if decimals else expression


def _agree(expected: Any, given: Any) -> bool:
    """Return whether two values found equal also agree in their leading digits, and are not only both nearly zero."""
    from sympy import Expr

    if not all(isinstance(each, Expr) and each.is_number for each in (expected, given)):
        return True
    values = [abs(complex(each.evalf(_DIGITS))) for each in (expected, given, expected - given)]
    return bool(values[2] <= _RELATIVE * max(values[:2]))


def serve(seconds: int) -> None:
    """Read pairs of answers, a batch per line of input, and write 1 or 0 for each pair, until the input ends."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    logging.disable(logging.CRITICAL)
    answers = os.dup(1)
    os.dup2(2, 1)  # output of libraries must not be read as an answer
    same_expression("x", "x", seconds)  # imports everything before the first pair
    os.write(answers, b"r")
    for line in sys.stdin:
        for given, expected in json.loads(line):
            os.write(answers, b"1" if same_expression(given, expected, seconds) else b"0")


if __name__ == "__main__":
    serve(int(sys.argv[1]))
