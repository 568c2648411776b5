"""Rules over an agent's actions, as circuits of propositions: a truth table decides which hold, and no code is run.

    when: ^buy        requires: looked and (cheap or not dear)

A proposition is a name, true if its pattern is found in the texts of both sides before the turn; `when` is a pattern
that selects the turns that the rule is about.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from models.method.episode import Turn


def names_of(formula: str) -> set[str]:
    """Return the names of the propositions in a formula.

    Raises:
        ValueError: it is not a formula of names with and, or, not and brackets.
    """
    return {node.id for node in ast.walk(_tree(formula)) if isinstance(node, ast.Name)}


def holds(formula: str, facts: Mapping[str, bool]) -> bool:
    """Return whether a formula is true, given the truth value of each proposition in `facts`.

    Raises:
        ValueError: it is not a formula, or names a proposition that the facts lack.
    """
    if missing := sorted(names_of(formula) - set(facts)):
        raise ValueError(f"no proposition is called {missing[0]!r}")
    return _value(_tree(formula), facts)


@lru_cache(maxsize=1024)
def _tree(formula: str) -> ast.expr:
    try:
        tree = ast.parse(formula.strip(), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"{formula!r} is not a formula of names with and, or, not and brackets") from None
    known = (ast.Name, ast.BoolOp, ast.And, ast.Or, ast.Not, ast.Load)
    for node in ast.walk(tree):
        if not isinstance(node, known) and not (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
            raise ValueError(f"{formula!r} is not a formula of names with and, or, not and brackets")
    return tree


def _value(node: ast.expr, facts: Mapping[str, bool]) -> bool:
    match node:
        case ast.Name(id=name):
            return facts[name]
        case ast.UnaryOp(operand=inner):
            return not _value(inner, facts)
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_value(part, facts) for part in parts)
        case ast.BoolOp(values=parts):
            return any(_value(part, facts) for part in parts)
    raise AssertionError("a formula is checked where it is read")


@dataclass(frozen=True)
class CompiledRule:
    """A rule with compiled patterns."""

    when: re.Pattern[str]
    requires: str
    weight: float


def violations(
    turns: Sequence[Turn], circuits: Sequence[CompiledRule], propositions: Mapping[str, re.Pattern[str]]
) -> list[float]:
    """Return the total weight of the rules that each turn violates, [turns].

    A turn violates a rule that is about it and whose formula does not hold.

    Under a log-linear model of the rules, in which a world weighs exp(sum of the weights of the rules that hold in it),
    this is the loss in log-odds of taking the action against not taking it: if it is not taken every rule holds.
    """
    before, weights = "", []
    for turn in turns:
        facts = {name: bool(pattern.search(before)) for name, pattern in propositions.items()}
        broken = [rule.weight for rule in circuits if rule.when.search(turn.text) and not holds(rule.requires, facts)]
        weights.append(sum(broken))
        before += f"{turn.text}\n{turn.response}\n"
    return weights
