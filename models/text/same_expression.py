"""Whether two answers are the same mathematics, asked of math-verify in a process of its own.

math-verify parses LaTeX into SymPy (no text is ever evaluated as Python) and compares what comes out: values to six
decimals, expressions by simplification, sets, intervals, matrices and relations by their own rules. Its limits of time
are signals, which only a main thread gets, and what it computes may take any memory: so it runs as the main program of
a process that `models.text.expression_workers` starts and ends, and this file imports nothing of the project.

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
from typing import Any

MEMORY = 2 * 1024**3
"""Bytes of address space that a comparison may take."""
_DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl."""


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
        return all(read) and bool(verify(*read, timeout_seconds=seconds))
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
    return list(parse(f"${plain}$", [LatexExtractionConfig()], fallback_mode="no_fallback", parsing_timeout=seconds))


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
