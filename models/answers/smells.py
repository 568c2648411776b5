"""Static metrics of unit tests: good practices, and smells that they are free of.

    syntax          they are Python
    asserts         they assert something
    focal           they call the function that they are for
    distinct        no assertion occurs twice
    unconditional   no assertion is under a condition, in a loop or after a caught exception
    silent          nothing is printed
    telling         no assertion is always true: of constants only, or of a value and itself

The metrics of RLSQM (paper 152, arXiv 2310.02368) as far as they apply to Python. The last four are not met by
tests that assert nothing, because an empty test would otherwise be free of every smell.
"""

from __future__ import annotations

import ast
from typing import Literal, get_args

Metric = Literal["syntax", "asserts", "focal", "distinct", "unconditional", "silent", "telling"]
METRICS: tuple[Metric, ...] = get_args(Metric)
LONGEST = 20_000
"""Characters beyond which tests are not analysed, and meet no metric."""
_BRANCHES = (
    ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.TryStar, ast.Match, ast.comprehension,
)  # fmt: skip


def met_by(tests: str, entry_point: str) -> frozenset[Metric]:
    """Return the metrics that tests meet.

    Args:
        tests: Python, or any other text.
        entry_point: name of the function under test.
    """
    try:
        tree = ast.parse(tests) if len(tests) <= LONGEST else ast.Module([], [])
        return _met(tree, entry_point) if tree.body else frozenset()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()


def _met(tree: ast.Module, entry_point: str) -> frozenset[Metric]:
    nodes = list(ast.walk(tree))
    called = [_called(node) for node in nodes if isinstance(node, ast.Call)]
    asserted = [node.test for node in nodes if isinstance(node, ast.Assert)]
    met: dict[Metric, bool] = {"syntax": True, "asserts": bool(asserted), "focal": entry_point in called}
    if asserted:
        texts = [ast.dump(test) for test in asserted]
        met["distinct"] = len(set(texts)) == len(texts)
        met["unconditional"] = not any(isinstance(node, _BRANCHES) for node in nodes)
        met["silent"] = "print" not in called
        met["telling"] = not any(map(_holds_of_everything, asserted))
    return frozenset(metric for metric, there in met.items() if there)


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _holds_of_everything(test: ast.expr) -> bool:
    """Return whether an assertion does not depend on the program: it names nothing, or compares a value with itself."""
    if not any(isinstance(node, ast.Name) for node in ast.walk(test)):
        return True
    match test:
        case ast.Compare(left=left, comparators=[right]):
            return ast.dump(left) == ast.dump(right)
    return False
