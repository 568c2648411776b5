"""Strict YAML by version 1.2, which DVC reads too: no value is dropped or changed silently.

Refused: a key that occurs twice in one mapping, a key that is not text, and documents whose nesting, aliases or numbers
can only come from an accident or an attack. `on`, `off`, `yes` and `no` are text, `010` and `1:30` are not numbers of
another base, `2026-11-01` is not a date, and `1e-5` is a number.
"""

from __future__ import annotations

import re
import sys
from typing import Any

import yaml

from models.base.errors import shortened

DEEPEST = 40
"""Largest number of levels of nesting."""
LONGEST = 2**20
"""Largest number of characters of a document."""
MOST_VALUES = 100_000
"""Largest number of values of a document with every alias written out."""


class YamlError(ValueError):
    """Reason why a text is not accepted as YAML: one line, with the place if it is known."""


class _Loader(yaml.SafeLoader):
    """Loader of safe YAML with the core schema of 1.2, whose composer counts levels."""

    level = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose a node (see yaml.composer); raise a YamlError if it is nested too deeply."""
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
        """Construct a whole number."""
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
"""Type of a plain scalar -> its possible first characters, and its pattern."""

_Loader.yaml_implicit_resolvers = {"": [("tag:yaml.org,2002:null", re.compile(r"\Z"))]}
for _tag, (_begins, _pattern) in _CORE.items():
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), list(_begins))
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_whole)


def parse_yaml(text: str) -> Any:
    """Return the value of a YAML text; None if it is empty.

    Raises:
        YamlError: the text is not YAML, or is one of the refused cases in the docstring of the module.
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
    """Return the line and the problem in it; a reader's error has no line."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is not None and problem:
        context = getattr(error, "context", None)
        return f"line {mark.line + 1}: {problem}" + (f" {context}" if context else "")
    return " ".join(str(error).replace('in "<unicode string>", ', "").split())


def _shown(node: yaml.Node) -> str:
    """Return the text of a node for a message; "it" for any node that is not a scalar."""
    return f"'{shortened(node.value)}'" if isinstance(node, yaml.ScalarNode) else "it"


def _require_keys(node: yaml.MappingNode) -> None:
    """Require that the keys of a mapping are text and unique; keys that `<<` merges may be repeated."""
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
    """Require that a scalar is valid Unicode: escapes may write halves of characters, arguments stray bytes."""
    try:
        str(node.value).encode("utf-8")
    except UnicodeEncodeError as error:
        raise YamlError(f"line {node.start_mark.line + 1}: not valid Unicode ({error.reason})") from None


def _require_sound(root: yaml.Node) -> None:
    """Require that text is Unicode, keys are unique, and the document stays small with all aliases written out.

    Raises:
        YamlError: text or keys are invalid, the document has too many values or levels, or an alias is inside the node
            that it refers to.
    """
    known: dict[int, tuple[int, int]] = {}
    above: set[int] = set()

    def extent(node: yaml.Node) -> tuple[int, int]:
        """Return the numbers of values and levels of a node."""
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
