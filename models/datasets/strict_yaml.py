"""YAML read strictly, in its newer sense (1.2, as DVC reads it too): no value is dropped or bent without a word.

Refused: a key that stands twice in one mapping, a key that is no text, and documents whose nesting, aliases or numbers
only an accident or an attack writes. `on`, `off`, `yes` and `no` are text, `010` and `1:30` are no numbers of another
base, `2026-11-01` is no date, and `1e-5` is a number.
"""

from __future__ import annotations

import re
import sys
from typing import Any

import yaml

from models.base.errors import shortened

DEEPEST = 40
"""Levels of nesting."""
LONGEST = 2**20
"""Characters of a document."""
MOST_VALUES = 100_000
"""Values of a document with every alias written out."""


class YamlError(ValueError):
    """Why a text is no YAML to us: one line, with the place where it is known."""


class _Loader(yaml.SafeLoader):
    """Safe YAML with the core schema of 1.2, whose composer counts levels."""

    level = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """See yaml.composer."""
        self.level += 1
        try:
            if self.level > DEEPEST:
                event: Any = self.peek_event()  # type: ignore[no-untyped-call]
                raise YamlError(f"line {event.start_mark.line + 1}: nested more than {DEEPEST} levels deep")
            node: yaml.Node | None = super().compose_node(parent, index)
            return node
        finally:
            self.level -= 1

    def construct_whole(self, node: yaml.ScalarNode) -> int:
        """A whole number."""
        text = str(self.construct_scalar(node)).replace("_", "")
        if len(text) > sys.get_int_max_str_digits() > 0:
            raise YamlError(f"line {node.start_mark.line + 1}: a whole number of {len(text)} digits")
        return int(text, 16 if "x" in text else 10)


_DIGITS = "[0-9][0-9_]*"
_POWER = "[eE][-+]?[0-9]+"
_CORE = {
    "bool": ("tTfF", "true|True|TRUE|false|False|FALSE"),
    "int": ("-+0123456789", "[-+]?(?:0|[1-9][0-9_]*)|0x[0-9a-fA-F]+"),
    "float": (
        "-+.0123456789",
        rf"[-+]?(?:(?:{_DIGITS})?\.[0-9]+(?:{_POWER})?|{_DIGITS}\.(?:{_POWER})?|{_DIGITS}{_POWER}|\.(?:inf|Inf|INF))"
        r"|\.(?:nan|NaN|NAN)",
    ),
    "null": ("~nN", "~|null|Null|NULL"),
    "merge": ("<", "<<"),
}
"""Type of a plain scalar -> the characters that it begins with, and its pattern."""

_Loader.yaml_implicit_resolvers = {"": [("tag:yaml.org,2002:null", re.compile(r"\Z"))]}
for _tag, (_begins, _pattern) in _CORE.items():
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), list(_begins))
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_whole)


def parse_yaml(text: str) -> Any:
    """The value of a YAML text; None where it is empty.

    Raises:
        YamlError: it is none, or one of those that the module's head names.
    """
    if len(text) > LONGEST:
        raise YamlError(f"{len(text)} characters, more than {LONGEST}")
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _require_sound(node)
            return loader.construct_document(node)  # type: ignore[no-untyped-call]
        finally:
            loader.dispose()  # type: ignore[no-untyped-call]
    except YamlError:
        raise
    except yaml.YAMLError as error:
        raise YamlError(_place_and_problem(error)) from None
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise YamlError(f"a value does not fit its tag ({' '.join(str(error).split())})") from None


def _place_and_problem(error: yaml.YAMLError) -> str:
    """The line and what is wrong in it; a reader's error has no line."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is not None and problem:
        context = getattr(error, "context", None)
        return f"line {mark.line + 1}: {problem}" + (f" {context}" if context else "")
    return " ".join(str(error).replace('in "<unicode string>", ', "").split())


def _shown(node: yaml.Node) -> str:
    """What stands in the file for a node."""
    return f"'{shortened(node.value)}'" if isinstance(node, yaml.ScalarNode) else "it"


def _require_keys(node: yaml.MappingNode) -> None:
    """Make sure that the keys of a mapping are text and stand once; what `<<` brings may stand again."""
    seen: dict[str, int] = {}
    for key, _ in node.value:
        line = key.start_mark.line + 1
        if key.tag == "tag:yaml.org,2002:merge":
            continue
        if key.tag != "tag:yaml.org,2002:str":
            raise YamlError(f"line {line}: a key must be text, put {_shown(key)} in quotes")
        if key.value in seen:
            first = seen[key.value]
            raise YamlError(f"line {line}: the key '{shortened(key.value)}' stands twice, first in line {first}")
        seen[key.value] = line


def _require_text(node: yaml.ScalarNode) -> None:
    """Make sure that a scalar is valid Unicode: escapes may write halves of characters, arguments stray bytes."""
    try:
        str(node.value).encode("utf-8")
    except UnicodeEncodeError as error:
        raise YamlError(f"line {node.start_mark.line + 1}: not valid Unicode ({error.reason})") from None


def _require_sound(root: yaml.Node) -> None:
    """Make sure that text is Unicode, keys stand once, and the document stays small with all aliases written out.

    Raises:
        YamlError: they do not, it has too many values or levels, or an alias stands inside of what it stands for.
    """
    known: dict[int, tuple[int, int]] = {}
    above: set[int] = set()

    def extent(node: yaml.Node) -> tuple[int, int]:
        """Values and levels of a node."""
        line = node.start_mark.line + 1
        if id(node) in above:
            raise YamlError(f"line {line}: an alias stands inside of what it stands for")
        if id(node) not in known:
            above.add(id(node))
            children: list[yaml.Node] = []
            if isinstance(node, yaml.ScalarNode):
                _require_text(node)
            elif isinstance(node, yaml.SequenceNode):
                children = list(node.value)
            elif isinstance(node, yaml.MappingNode):
                _require_keys(node)
                children = [child for pair in node.value for child in pair]
            extents = [extent(child) for child in children]
            known[id(node)] = 1 + sum(size for size, _ in extents), 1 + max((depth for _, depth in extents), default=0)
            above.discard(id(node))
            if known[id(node)][0] > MOST_VALUES or known[id(node)][1] > DEEPEST:
                raise YamlError(f"line {line}: aliases make more than {MOST_VALUES} values or {DEEPEST} levels of this")
        return known[id(node)]

    extent(root)
