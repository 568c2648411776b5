"""Check of a recipe against the JSON Schema of recipes, in milliseconds: neither torch nor a part is imported.

The check reads the merged recipe: its file, the files it extends, and overrides. It decides about keys, names of parts,
types and limits. Whether the parts fit together, and what a part reads from files, only `load_recipe` decides.

JSON Schema alone would be stricter than the loader, which reads the text "3" as a number, and it would report every
alternative of a part. So the schema is followed here by the names of parts, and a finding has the loader's key, and for
most errors its words. Where the loader might accept a value that the schema refuses, the loader decides (`Undecided`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from models.base.errors import UserError, shortened
from models.recipes.explain import unknown_key, unknown_value
from models.recipes.find import find_recipe
from models.recipes.layers import read_layers

Schema = Mapping[str, Any]

_BOOLEAN_TEXTS = {"0", "off", "f", "false", "n", "no", "1", "on", "t", "true", "y", "yes"}
"""Texts that the loader reads as true or false."""
_KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}
_WORDS = {"object": "dictionary", "array": "list"}
_WORDS_OF_NUMBERS = {"integer": "an integer", "number": "a number"}
_NULL = "Input should be null"
_LIMITS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "minimum": (lambda value, limit: value >= limit, "Input should be greater than or equal to {}"),
    "exclusiveMinimum": (lambda value, limit: value > limit, "Input should be greater than {}"),
    "maximum": (lambda value, limit: value <= limit, "Input should be less than or equal to {}"),
    "exclusiveMaximum": (lambda value, limit: value < limit, "Input should be less than {}"),
    "minLength": (lambda value, limit: len(value) >= limit, "String should have at least {} characters"),
    "maxLength": (lambda value, limit: len(value) <= limit, "String should have at most {} characters"),
    "pattern": (lambda value, limit: re.search(limit, value), "String should match pattern '{}'"),
    "minItems": (lambda value, limit: len(value) >= limit, "List should have at least {} items"),
    "maxItems": (lambda value, limit: len(value) <= limit, "List should have at most {} items"),
    "minProperties": (lambda value, limit: len(value) >= limit, "Dictionary should have at least {} items"),
}
"""Keyword -> whether a value keeps the limit, and the words of the refusal."""
_READ = {
    *("$ref", "anyOf", "oneOf", "discriminator", "type", "enum", "const", "items", "prefixItems", "properties"),
    *("additionalProperties", "patternProperties", "propertyNames", "renamed", *_LIMITS),
    *("title", "description", "default", "format"),
}
"""Keywords that the check knows."""


class Undecided(Exception):
    """Raised for a value that only the loader can decide about."""


def quick_findings(path: str | Path, overrides: Sequence[str], schema: Schema) -> list[str]:
    """Check a recipe against the schema and return its errors, one line each; none if it has none.

    Args:
        path: a YAML file, or the name of one in recipes/.
        overrides: `key.path=value` each, the value in YAML.
        schema: schema from `recipe_schema`.

    Raises:
        UserError: no such file, not valid YAML, or an override that reaches nothing.
        Undecided: only the loader can decide.
    """
    file = find_recipe(path)
    raw = read_layers(file, overrides, with_parts=False)
    raw.setdefault("name", file.stem)
    return list(UserError(*(f"{file}: {finding}" for finding in findings(raw, schema))).args)


def findings(recipe: Mapping[str, Any], schema: Schema) -> list[str]:
    """Return the errors of a merged recipe by the schema, each with its path inside the YAML.

    Raises:
        Undecided: only the loader can decide.
    """
    properties = {key: each for key, each in schema["properties"].items() if key != "extends"}
    sections = {"type": "object", "properties": properties, "additionalProperties": False}
    return _Check(schema["$defs"]).of(recipe, sections, "")


class _Check:
    """Check of values against the schemas of their types."""

    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self._definitions = definitions

    def of(self, value: Any, schema: Schema, path: str) -> list[str]:
        """Return the errors of a value at a path."""
        if "$ref" in schema:
            return self.of(value, self._definition(schema["$ref"]), path)
        if "discriminator" in schema:
            return self._part(value, schema, path)
        if options := schema.get("anyOf") or schema.get("oneOf"):
            return self._either(value, options, path)
        if unread := schema.keys() - _READ:
            raise Undecided(f"{path}: the schema has {', '.join(sorted(unread))}")
        if "enum" in schema or "const" in schema:
            return _value_error(value, schema.get("enum") or [schema["const"]], path)
        if error := _type_error(value, schema["type"]):
            return [_at(path, error)]
        lines = [
            _at(path, words.format(schema[key]))
            for key, (holds, words) in _LIMITS.items()
            if key in schema and not holds(value, schema[key])
        ]
        if isinstance(value, dict):
            lines += self._entries(value, schema, path)
        elif isinstance(value, list):
            kinds = schema.get("prefixItems") or [schema["items"]] * len(value)
            for number, (entry, kind) in enumerate(zip(value, kinds, strict=False)):
                lines += self.of(entry, kind, f"{path}.{number}")
        return lines

    def _definition(self, reference: str) -> Schema:
        return self._definitions[reference.rpartition("/")[2]]

    def _entries(self, value: dict[str, Any], schema: Schema, path: str) -> list[str]:
        """Return the errors of the entries of a section, a part or a mapping of any names."""
        properties, forms = schema.get("properties", {}), schema.get("patternProperties", {})
        others = schema.get("additionalProperties", False)
        lines = []
        for key, entry in value.items():
            place = f"{path}.{key}" if path else key
            if key in properties:
                lines += self.of(entry, properties[key], place)
            elif form := next((form for form in forms if re.search(form, key)), None):
                lines += self.of(key, {"type": "string", **schema.get("propertyNames", {})}, place)
                lines += self.of(entry, forms[form], place)
            elif forms:
                lines.append(_at(place, f"String should match pattern '{next(iter(forms))}'"))
            elif others is True:  # a mapping of any values
                continue
            elif isinstance(others, dict):
                lines += self.of(entry, others, place)
            else:
                known = [name for name in properties if name != "name"]
                lines.append(unknown_key(shortened(place, 120), key, known, schema.get("renamed", {})))
        return lines

    def _part(self, value: Any, schema: Schema, path: str) -> list[str]:
        """Return the errors of a part, whose name decides which settings it has."""
        if not isinstance(value, dict):
            return [_at(path, "Input should be a valid dictionary")]
        known = schema["discriminator"]["mapping"]
        name = value.get("name", schema["default"]["name"])
        if not isinstance(name, str) or name not in known:
            return [unknown_value(f"{shortened(path, 120)}.name", name, list(known))]
        return self.of(value, self._definition(known[name]), path)

    def _either(self, value: Any, options: Sequence[Schema], path: str) -> list[str]:
        """Return the errors of a value that may have several types; none if it fits one of them.

        The errors of a mapping or a list are those of the type of this kind, if there is only one. Otherwise one line
        has the errors by all types.
        An option without a type is the name of a part alone, which the merged recipe has as `{name: ...}`.
        """
        options = [inner for option in options for inner in _alternatives(option)]
        options = [option for option in options if "enum" not in option or "type" in option]
        errors: list[list[str]] = []
        fitting: list[list[str]] = []
        undecided: Undecided | None = None
        for option in options:
            try:
                errors.append(self.of(value, option, path))
            except Undecided as reason:
                undecided = reason
                continue
            if self._is_of_kind(value, option):
                fitting.append(errors[-1])
        if [] in errors:
            return []
        if undecided is not None:
            raise undecided
        if len(fitting) == 1 and isinstance(value, dict | list):
            return fitting[0]
        alternatives = [lines[0].removeprefix(_at(path, "")) for lines in errors]
        return [_at(path, ", or ".join(words for words in dict.fromkeys(alternatives) if words != _NULL))]

    def _is_of_kind(self, value: Any, option: Schema) -> bool:
        if "$ref" in option:
            return self._is_of_kind(value, self._definition(option["$ref"]))
        kind = "object" if "discriminator" in option else option.get("type", "string")
        return isinstance(value, _KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _alternatives(schema: Schema) -> Sequence[Schema]:
    """Return the schemas that a schema consists of, if any of them may hold; otherwise the schema itself."""
    inner = [] if "discriminator" in schema else schema.get("anyOf") or schema.get("oneOf") or []
    return [each for option in inner for each in _alternatives(option)] or [schema]


def _at(path: str, error: str) -> str:
    return f"{shortened(path, 120)}: {error}" if path else error


def _value_error(value: Any, known: Sequence[Any], path: str) -> list[str]:
    if value not in known:
        return [unknown_value(shortened(path, 120), value, known)]
    if type(value) not in {type(each) for each in known}:
        raise Undecided(f"{path}: true and 1 are equal")
    return []


def _type_error(value: Any, kind: str) -> str:
    """Return the error of a value that is not of a type of JSON Schema; "" if it is.

    Raises:
        Undecided: the loader converts the value, and decides about the result.
    """
    if isinstance(value, _KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool)):
        return ""
    if kind == "null":
        return _NULL
    words = f"Input should be a valid {_WORDS.get(kind, kind)}"
    if kind == "boolean":
        if value in (0, 1) or (isinstance(value, str) and value.lower() in _BOOLEAN_TEXTS):
            raise Undecided(f"{value!r} is read as true or false")
        return f"{words}, unable to interpret input" if isinstance(value, str) else words
    if kind in ("integer", "number"):
        if isinstance(value, float):
            if value.is_integer():
                return ""
            return f"{words}, got a number with a fractional part"
        if isinstance(value, bool) or (isinstance(value, str) and _is_number(value)):
            raise Undecided(f"{value!r} is read as a number")
        return f"{words}, unable to parse string as {_WORDS_OF_NUMBERS[kind]}" if isinstance(value, str) else words
    return words


def _is_number(text: str) -> bool:
    with suppress(ValueError):
        float(text)
        return True
    return False
