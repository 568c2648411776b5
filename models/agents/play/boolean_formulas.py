"""Boolean formulas and six ways of rewriting them, none of which changes what a formula means.

    simplify   not not a -> a          a and a -> a        a and not a -> false     a or false -> a
    absorb     a and (a or b) -> a     a or (a and b) -> a
    inward     not (a and b) -> not a or not b             not (a or b) -> not a and not b
    outward    not a or not b -> not (a and b)             not a and not b -> not (a or b)
    factor     (a and b) or (a and c) -> a and (b or c)    and the same with and, or exchanged
    spread     a and (b or c) -> (a and b) or (a and c)    and the same with and, or exchanged

A formula is a name, "true", "false", or a tuple: an operator and its sorted parts. Nested equal operators are one. Its
size is its number of gates: one for each `not`, and one less than its parts for `and` and `or`. A rewriting is applied
at every place, from the innermost parts outwards, once.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

Formula = Any
"""A text, or a tuple of an operator and formulas."""
_DUAL = {"and": "or", "or": "and"}
_NEUTRAL = {"and": "true", "or": "false"}
LARGEST_SIZE = 60
"""A rewriting that would make a formula with more gates leaves it as it is."""


def parse_formula(text: str) -> Formula:
    """Return the formula of a text with names, and, or, not, True, False and brackets.

    Raises:
        ValueError: the text has anything else.
    """
    try:
        return _of_tree(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"{text!r} is not a formula of names with and, or, not and brackets") from None


def _of_tree(node: ast.expr) -> Formula:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Constant(value=bool(value)):
            return str(value).lower()
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return ("not", _of_tree(inner))
        case ast.BoolOp(op=operator, values=parts):
            return joined("and" if isinstance(operator, ast.And) else "or", map(_of_tree, parts))
    raise ValueError("a formula has only names, and, or, not and brackets")


def written(formula: Formula) -> str:
    """Return a formula as text; what `parse_formula` reads as the same formula."""
    if isinstance(formula, str):
        return {"true": "True", "false": "False"}.get(formula, formula)
    operator, *parts = formula
    texts = [written(part) if isinstance(part, str) or part[0] == "not" else f"({written(part)})" for part in parts]
    return f"not {texts[0]}" if operator == "not" else f" {operator} ".join(texts)


def size_of(formula: Formula) -> int:
    """Return the number of gates."""
    if isinstance(formula, str):
        return 0
    return max(1, len(formula) - 2) + sum(size_of(part) for part in formula[1:])


def joined(operator: str, parts: Iterable[Formula]) -> Formula:
    """Return `and` or `or` of parts, sorted, with nested equal operators as one; a single part is itself."""
    flat: list[Formula] = []
    for part in parts:
        flat += part[1:] if not isinstance(part, str) and part[0] == operator else (part,)
    if not flat:
        return _NEUTRAL[operator]
    return flat[0] if len(flat) == 1 else (operator, *sorted(flat, key=repr))


def _negated(formula: Formula) -> Formula:
    return formula[1] if not isinstance(formula, str) and formula[0] == "not" else ("not", formula)


def _parts(formula: Formula, operator: str) -> tuple[Formula, ...]:
    """Return the parts of a formula with this operator; of another one, itself as the only part."""
    return tuple(formula[1:]) if not isinstance(formula, str) and formula[0] == operator else (formula,)


def _simplify(formula: Formula) -> Formula:
    operator, *parts = formula
    if operator == "not":
        return (
            {"true": "false", "false": "true"}.get(parts[0], formula) if isinstance(parts[0], str) else _double(formula)
        )
    neutral, final = _NEUTRAL[operator], _NEUTRAL[_DUAL[operator]]
    left = [part for part in dict.fromkeys(parts) if part != neutral]
    if final in left or any(_negated(part) in left for part in left):
        return final
    return joined(operator, left)


def _double(formula: Formula) -> Formula:
    inner = formula[1]
    return inner[1] if inner[0] == "not" else formula


def _absorb(formula: Formula) -> Formula:
    operator, *parts = formula
    if operator == "not":
        return formula
    dual = _DUAL[operator]
    left = [
        part
        for part in parts
        if not any(other != part and set(_parts(other, dual)) < set(_parts(part, dual)) for other in parts)
    ]
    return joined(operator, left)


def _inward(formula: Formula) -> Formula:
    operator, *parts = formula
    if operator != "not" or isinstance(parts[0], str) or parts[0][0] == "not":
        return formula
    return joined(_DUAL[parts[0][0]], (("not", part) for part in parts[0][1:]))


def _outward(formula: Formula) -> Formula:
    operator, *parts = formula
    if operator == "not":
        return formula
    inverted = [part[1] for part in parts if not isinstance(part, str) and part[0] == "not"]
    if len(inverted) < 2:
        return formula
    others = [part for part in parts if isinstance(part, str) or part[0] != "not"]
    return joined(operator, [*others, ("not", joined(_DUAL[operator], inverted))])


def _factor(formula: Formula) -> Formula:
    operator, *parts = formula
    if operator == "not":
        return formula
    dual = _DUAL[operator]
    holders: dict[Formula, list[Formula]] = {}
    for part in parts:
        for factor in dict.fromkeys(_parts(part, dual)):
            holders.setdefault(factor, []).append(part)
    factor, having = max(holders.items(), key=lambda item: (len(item[1]), repr(item[0])))
    if len(having) < 2:
        return formula
    rests = [joined(dual, _without(_parts(part, dual), factor)) for part in having]
    others = list(parts)
    for part in having:
        others.remove(part)
    return joined(operator, [*others, joined(dual, [factor, joined(operator, rests)])])


def _without(parts: tuple[Formula, ...], factor: Formula) -> list[Formula]:
    left = list(parts)
    left.remove(factor)
    return left


def _spread(formula: Formula) -> Formula:
    operator, *parts = formula
    dual = _DUAL.get(operator, "")
    sums = [part for part in parts if not isinstance(part, str) and part[0] == dual]
    if not sums:
        return formula
    others = list(parts)
    others.remove(sums[0])
    return joined(dual, [joined(operator, [*others, part]) for part in sums[0][1:]])


REWRITINGS: dict[str, Callable[[Formula], Formula]] = {
    "simplify": _simplify,
    "absorb": _absorb,
    "inward": _inward,
    "outward": _outward,
    "factor": _factor,
    "spread": _spread,
}
"""What each way of rewriting does with a formula that is a tuple, whose parts have been rewritten."""


@lru_cache(maxsize=65536)
def rewritten(formula: Formula, way: str) -> Formula:
    """Return an equivalent formula, rewritten at every place in a way of `REWRITINGS`."""
    changed = _everywhere(formula, REWRITINGS[way])
    return formula if size_of(changed) > LARGEST_SIZE else changed


def _everywhere(formula: Formula, change: Callable[[Formula], Formula]) -> Formula:
    if isinstance(formula, str):
        return formula
    operator, *parts = formula
    new = [_everywhere(part, change) for part in parts]
    whole = (operator, *new) if operator == "not" else joined(operator, new)
    return whole if isinstance(whole, str) else change(whole)


@lru_cache(maxsize=4096)
def least_size(formula: Formula, steps: int) -> int:
    """Return the least number of gates that at most `steps` rewritings reach, by trying all of them."""
    reached = {formula}
    layer = {formula}
    for _ in range(steps):
        layer = {rewritten(each, way) for each in layer for way in REWRITINGS} - reached
        reached |= layer
    return min(size_of(each) for each in reached)
