"""Tests cut into cases, each of which can be run alone.

Tests are Python: a function `check(candidate)`, as in HumanEval (Chen et al. 2021, arXiv 2107.03374), or statements
that call the program's function by its name. A case is a statement that asserts something of the program's answers; all
other statements are run before every case. If an assertion needs a value that an earlier statement got from the
program, all statements are one case.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from types import CodeType

CANDIDATE = "candidate"
"""Name of the program's function in a case, in addition to the name that the program gives it."""
_CHECK = "check"


class UselessTests(Exception):
    """The tests are not valid Python, or assert nothing about the program."""


def cases_of(tests: str, entry_point: str) -> list[CodeType]:
    """Return the cases, in their order in the tests; each is run in a namespace that contains the function.

    Args:
        tests: Python.
        entry_point: name of the program's function.

    Raises:
        UselessTests: there are none.
    """
    try:
        tree = ast.parse(tests)
        modules = list(_modules(tree, entry_point))
        return [compile(ast.fix_missing_locations(module), "<tests>", "exec") for module in modules]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UselessTests(f"the tests are not Python ({type(error).__name__}: {error})") from None


def _modules(tree: ast.Module, entry_point: str) -> Iterable[ast.Module]:
    check = next((node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == _CHECK), None)
    if check is None:
        for body in _bodies(tree.body, {CANDIDATE, entry_point}):
            yield ast.Module(body, [])
        return
    first = (*check.args.posonlyargs, *check.args.args)
    if not first:
        raise UselessTests("check() takes no function to check")
    call = ast.Expr(ast.Call(ast.Name(_CHECK, ast.Load()), [ast.Name(CANDIDATE, ast.Load())], []))
    around = [node for node in tree.body if node is not check and not _calls_check(node)]
    for body in _bodies(check.body, {first[0].arg, entry_point}):
        alone = ast.FunctionDef(_CHECK, check.args, body, check.decorator_list, check.returns)
        yield ast.Module([*around, alone, call], [])


def _calls_check(node: ast.stmt) -> bool:
    """Return whether this is the call `check(...)` itself, which some data sets end with."""
    match node:
        case ast.Expr(value=ast.Call(func=ast.Name(id=name))):
            return name == _CHECK
    return False


def _bodies(statements: list[ast.stmt], names: set[str]) -> list[list[ast.stmt]]:
    """Return the statements of each case, [cases][statements]."""
    asking = [node for node in statements if _names(node) & names]
    cases = [node for node in asking if any(isinstance(inner, ast.Assert) for inner in ast.walk(node))]
    if len(cases) != len(asking) or not cases:
        return [statements]
    others = set(map(id, cases))
    return [[node for node in statements if node is case or id(node) not in others] for case in cases]


def _names(node: ast.stmt) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
