"""Whether two answers are the same mathematics, asked of math-verify in a process of its own.

math-verify parses LaTeX into SymPy (no text is ever evaluated as Python) and compares what comes out: expressions by
simplification, sets, intervals, matrices and relations by their own rules. It would round decimals, to six of them, so
they are made the fractions that they are, and two values must agree relative to their size: 0.0 is not 10^{-8}. Its
limits of time are signals, which only a main thread gets, and what it computes may take any memory: so it runs as the
main program of a process that `models.text.expression_workers` starts and ends, and this file imports nothing of the
project. Units are no matter of it: what it is given has none.

What goes in and out, by pipes: a line of JSON, `[[given, expected], ...]`; then a sign a pair, `1` or `0`, in order.
The first sign of all is `r`, once the process is ready.
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
"""Bytes of address space that a comparison may take."""
_DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl."""
_DIGITS, _RELATIVE = 30, 1e-12
"""To which values are computed, and how far apart they may be for their size."""


def same_expression(given: str, expected: str, seconds: int) -> bool:
    """Whether two texts say the same expression; what cannot be read, or takes too long, is another one.

    Args:
        given: what was answered.
        expected: what is right: an equation in it, as `x = 5`, may be answered by its value, and the other way round.
        seconds: that each of reading the one, reading the other and comparing them may take.
    """
    try:
        from math_verify import verify

        read = [_parsed(text, seconds) for text in (expected, given)]
        return all(read) and bool(verify(*read, timeout_seconds=seconds)) and _agree(read[0][0], read[1][0])
    except Exception:  # whatever SymPy raises
        return False
    except BaseException as error:  # math-verify's limit of time, where its signal comes late
        if type(error).__name__ != "TimeoutException":
            raise
        return False


def _parsed(text: str, seconds: int) -> list[Any]:
    from math_verify import LatexExtractionConfig, parse

    plain = " ".join(text.replace("$", " ").replace("\\(", " ").replace("\\)", " ").split())
    if not plain:
        return []
    # its own reading of units takes the last letters of 6ab, 2d and x + 2m for some
    latex = LatexExtractionConfig()
    latex = replace(latex, normalization_config=replace(latex.normalization_config, units=False))
    read = parse(f"${plain}$", [latex], fallback_mode="no_fallback", parsing_timeout=seconds)
    return [_exact(expression) for expression in read]


def _exact(expression: Any) -> Any:
    """With its decimals as fractions."""
    from sympy import Float, Rational

    decimals = expression.atoms(Float)
    return expression.xreplace({each: Rational(str(each)) for each in decimals}) if decimals else expression


def _agree(expected: Any, given: Any) -> bool:
    """Whether two values that were called the same are so in their leading digits, and not only both nearly zero."""
    from sympy import Expr

    if not all(isinstance(each, Expr) and each.is_number for each in (expected, given)):
        return True
    values = [abs(complex(each.evalf(_DIGITS))) for each in (expected, given, expected - given)]
    return bool(values[2] <= _RELATIVE * max(values[:2]))


def serve(seconds: int) -> None:
    """Answer lines of pairs until there are no more."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    logging.disable(logging.CRITICAL)
    answers = os.dup(1)
    os.dup2(2, 1)  # whatever libraries print is no answer
    same_expression("x", "x", seconds)  # loads all that there is to load
    os.write(answers, b"r")
    for line in sys.stdin:
        for given, expected in json.loads(line):
            os.write(answers, b"1" if same_expression(given, expected, seconds) else b"0")


if __name__ == "__main__":
    serve(int(sys.argv[1]))
