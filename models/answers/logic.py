"""Parser of first-order logic formulas from text to trees; their meaning is not evaluated here.

    forall x ( dog ( x ) -> barks ( x ) )      also with ∀ ∃ ∧ ∨ ¬ → ↔ ⊕, with `all`, `exists`, `and`, `or`, `not`

Binding, from the tightest: not and quantifiers, and, xor, or, implies (to the right), iff. A quantifier applies to
what directly follows it, like a negation. Bound variables are renamed in the order of their quantifiers, so that
formulas which differ in their names only have the same tree. Every text gives a tree or None.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product

Tree = tuple["str | Tree", ...]
"""("forall" | "exists", variable, body), ("not", body), ("and" | "or" | "xor" | "implies" | "iff", left, right), or an
atom: ("atom", predicate, argument, ...), each argument a name; names of bound variables begin with `?`."""

LONGEST = 2000
"""Largest number of characters of a formula."""
DEEPEST = 60
"""Largest nesting depth of a formula."""
MOST_ATOMS = 12
"""Largest number of different atoms in two formulas for which truth tables are compared."""
_TOKEN = re.compile(r"<->|<=>|->|=>|\w+|[^\s\w]")
_WORDS = {
    "∀": "forall", "all": "forall", "∃": "exists", "∧": "and", "&": "and", "∨": "or", "|": "or", "¬": "not", "~": "not",
    "!": "not", "→": "implies", "->": "implies", "=>": "implies", "↔": "iff", "<->": "iff", "<=>": "iff", "⊕": "xor",
    "^": "xor",
}  # fmt: skip
_LEVELS = ("iff", "implies", "or", "xor", "and")
"""Operators from the loosest."""
_KEPT = frozenset({"forall", "exists", "not", *_LEVELS})


class _Unreadable(Exception):
    """Raised if a text is not a formula."""


def read_formula(text: str) -> Tree | None:
    """Return the tree of a formula; None if the text is not a formula, or is too long or too deep."""
    if len(text) > LONGEST:
        return None
    tokens = [_WORDS.get(token.casefold(), token.casefold()) for token in _TOKEN.findall(text.strip().rstrip("."))]
    try:
        reader = _Reader(tokens)
        tree = reader.binary(0, {}, 0)
        return tree if reader.at == len(tokens) else None
    except (_Unreadable, IndexError):
        return None


class _Reader:
    def __init__(self, tokens: Sequence[str]) -> None:
        self.tokens, self.at, self.bound = tokens, 0, 0

    def binary(self, level: int, names: Mapping[str, str], depth: int) -> Tree:
        """Parse operands joined by the operators of a level and tighter ones."""
        if depth > DEEPEST:
            raise _Unreadable
        if level == len(_LEVELS):
            return self.single(names, depth + 1)
        sign = _LEVELS[level]
        tree, terms = self.binary(level + 1, names, depth), 0
        while self.at < len(self.tokens) and self.tokens[self.at] == sign:
            self.at, terms = self.at + 1, terms + 1
            if depth + terms > DEEPEST:
                raise _Unreadable
            right_first = sign == "implies"
            tree = (sign, tree, self.binary(level if right_first else level + 1, names, depth + right_first))
        return tree

    def single(self, names: Mapping[str, str], depth: int) -> Tree:
        """Parse a negation, a quantified formula, one in brackets, or an atom."""
        token = self.take()
        if token == "not":
            return ("not", self.binary(len(_LEVELS), names, depth))
        if token in ("forall", "exists"):
            name, fresh = self.name(), f"?{self.bound}"
            self.bound += 1
            return (token, fresh, self.binary(len(_LEVELS), {**names, name: fresh}, depth))
        if token == "(":
            tree = self.binary(0, names, depth)
            self.take(")")
            return tree
        self.at -= 1
        return ("atom", self.name(), *self.arguments(names))

    def arguments(self, names: Mapping[str, str]) -> list[str]:
        if self.at >= len(self.tokens) or self.tokens[self.at] != "(":
            return []
        given: list[str] = []
        self.take("(")
        while not given or self.tokens[self.at] == ",":
            if given:
                self.take(",")
            name = self.name()
            given.append(names.get(name, name))
        self.take(")")
        return given

    def name(self) -> str:
        token = self.take()
        if not token[0].isalnum() or token in _KEPT:
            raise _Unreadable
        return token

    def take(self, wanted: str = "") -> str:
        token = self.tokens[self.at]
        if wanted not in ("", token):
            raise _Unreadable
        self.at += 1
        return token


def atoms_of(tree: Tree) -> dict[Tree, None]:
    """Return the different atoms of a formula, in their order."""
    if tree[0] == "atom":
        return {tree: None}
    return {atom: None for part in tree[1:] if isinstance(part, tuple) for atom in atoms_of(part)}


def agreement(left: Tree, right: Tree) -> float:
    """Return the share of truth assignments to the atoms under which two formulas agree, in [0, 1].

    Quantifiers are ignored. The share is 0 if there are more than MOST_ATOMS atoms.
    """
    atoms = list(atoms_of(left) | atoms_of(right))
    if len(atoms) > MOST_ATOMS:
        return 0.0
    rows = 1 << len(atoms)
    columns = {
        atom: sum(1 << row for row, values in enumerate(product((0, 1), repeat=len(atoms))) if values[place])
        for place, atom in enumerate(atoms)
    }
    every = (1 << rows) - 1
    return 1.0 - (_table(left, columns, every) ^ _table(right, columns, every)).bit_count() / rows


def _table(tree: Tree, columns: Mapping[Tree, int], every: int) -> int:
    """Return the rows in which a formula is true, one bit each."""
    if tree[0] == "atom":
        return columns[tree]
    parts = [_table(part, columns, every) for part in tree[1:] if isinstance(part, tuple)]
    match tree[0], *parts:
        case "not", int(body):
            return every ^ body
        case "and", int(a), int(b):
            return a & b
        case "or", int(a), int(b):
            return a | b
        case "xor", int(a), int(b):
            return a ^ b
        case "implies", int(a), int(b):
            return (every ^ a) | b
        case "iff", int(a), int(b):
            return every ^ a ^ b
    return parts[0]
