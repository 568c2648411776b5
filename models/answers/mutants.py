"""Programs that differ from a given one in one place: good tests distinguish them from it.

    x += 3      x -= 3, x += 4, pass            x > 9       x <= 9, x >= 9
    a and b     a or b                          -x          +x              min(x, 9)       max(x, 9)

The same program gives the same mutants, in the order of their places. Some behave like the program itself; which ones
is not known here.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

Change = Callable[[], None]
"""Changes a node in place."""

_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.GtE, ast.LtE), ast.LtE: (ast.Gt, ast.Lt), ast.Gt: (ast.LtE, ast.GtE), ast.GtE: (ast.Lt, ast.Gt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,), ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}  # fmt: skip
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}


def mutants_of(source: str, most: int) -> tuple[str, ...]:
    """Return different programs that differ from `source` in one place, at most `most`, taken evenly from all of them.

    Returns nothing if `source` is not Python.
    """
    try:
        tree = ast.parse(source)
        own = ast.unparse(tree)
        made = list(dict.fromkeys(text for text in _changed(source, tree) if text != own))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    if len(made) <= most:
        return tuple(made)
    return tuple(made[number * len(made) // most] for number in range(most))


def _changed(source: str, tree: ast.Module) -> Iterator[str]:
    for place, node in enumerate(ast.walk(tree)):
        for number in range(len(_changes(node))):
            other = ast.parse(source)
            same_place = next(each for at, each in enumerate(ast.walk(other)) if at == place)
            _changes(same_place)[number]()
            yield ast.unparse(ast.fix_missing_locations(other))


def _changes(node: ast.AST) -> list[Change]:
    """Return the ways to change a node."""
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return [lambda: setattr(node, "value", value + 1)]
        case ast.Constant(value=bool() as value):
            return [lambda: setattr(node, "value", not value)]
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator) if type(operator) in _OPERATORS:
            return [lambda: setattr(node, "op", _OPERATORS[type(operator)]())]
        case ast.Compare(ops=[operator, *others]) if type(operator) in _COMPARISONS:
            return [_comparing(node, [kind(), *others]) for kind in _COMPARISONS[type(operator)]]
        case ast.BoolOp(op=operator):
            return [lambda: setattr(node, "op", ast.Or() if isinstance(operator, ast.And) else ast.And())]
        case ast.UnaryOp(op=ast.USub()):
            return [lambda: setattr(node, "op", ast.UAdd())]
        case ast.Name(id=name) if name in _NAMES:
            return [lambda: setattr(node, "id", _NAMES[name])]
        case ast.FunctionDef(body=body) | ast.If(body=body) | ast.For(body=body):
            return [_dropping(body, place) for place, line in enumerate(body) if _can_drop(line)]
    return []


def _comparing(node: ast.Compare, operators: list[ast.cmpop]) -> Change:
    return lambda: setattr(node, "ops", operators)


def _dropping(body: list[ast.stmt], place: int) -> Change:
    return lambda: body.__setitem__(place, ast.Pass())


def _can_drop(line: ast.stmt) -> bool:
    """Return whether a statement can be dropped without breaking the program, unlike the first assignment to a name."""
    return isinstance(line, ast.AugAssign) or (
        isinstance(line, ast.Assign)
        and any(
            isinstance(target, ast.Name) and any(_is(target.id, inner) for inner in ast.walk(line.value))
            for target in line.targets
        )
    )


def _is(name: str, node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == name
