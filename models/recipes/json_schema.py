"""The JSON Schema (draft 2020-12) of recipes, made from the classes of the settings.

It describes a recipe's file as it is written, before `extends` is resolved, so no key is required. A slot is `oneOf`
over its parts, which `name` distinguishes. Settings without a name are those of the inherited part if the file extends
a recipe, and otherwise those of the slot's default part. The schema knows keys, types, limits and names of parts. It
does not know which parts fit together, and it asks for a number where the loader also reads a text such as "3".
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, cast

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import PydanticUndefined, core_schema

from models.method.part_checks import docstrings
from models.method.registry import NESTED_SLOTS, SLOTS, Part, Slot, WithName, as_list, default_part, slot_class
from models.recipes.catalogue import first_paragraph
from models.recipes.schema import recipe_type

DRAFT = "https://json-schema.org/draft/2020-12/schema"
_SLOT = "slot and default part"
"""Key that marks the union of a slot's parts until `_without_marks` replaces it by a reference."""
_WITHOUT_NAME = {"type": "object", "not": {"required": ["name"]}}


def recipe_schema() -> dict[str, Any]:
    """Build the JSON Schema of a recipe's file; imports every part."""
    made = recipe_type().model_json_schema(schema_generator=_Generator)
    slots: dict[str, Any] = {}
    sections = {name: _without_marks(each, slots) for name, each in made["$defs"].items()}
    properties = _without_marks(made["properties"], slots)
    for slot in SLOTS:
        properties[slot] = _of_file(slot, slots)
    for keys in (properties, *(section["properties"] for section in sections.values())):
        for each in keys.values():
            if "$ref" in each and "description" not in each:
                each["description"] = sections[each["$ref"].rpartition("/")[2]]["description"]
    extends = {
        "type": "string",
        "description": "Recipe that this one is merged into, key by key: one in the same folder, or in recipes/.",
    }
    return {
        "$schema": DRAFT,
        "title": "Recipe of Rewardflow",
        "description": "Settings of a whole run: sections, and a part for each slot of the loop.",
        "type": "object",
        "properties": {"extends": extends, **properties},
        "additionalProperties": False,
        "if": {"not": {"required": ["extends"]}},
        "then": {"properties": {slot: _default_part_if_unnamed(slot, slots) for slot in SLOTS}},
        "$defs": dict(sorted((slots | sections).items())),
    }


def _of_file(slot: Slot, slots: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a slot's key in a file: a part, its name alone, or a list of these if it may be several."""
    either = [{"enum": list(_references(slot, slots))}, {"$ref": f"#/$defs/slot_{slot}"}]
    if SLOTS[slot].many:  # a list replaces the inherited one, so that its parts inherit nothing
        either.append({"type": "array", "items": {"oneOf": list(either), **_default_part_if_unnamed(slot, slots)}})
    return {"oneOf": either, "description": _meaning(slot), "default": {"name": SLOTS[slot].default}}


def _default_part_if_unnamed(slot: Slot, slots: dict[str, Any]) -> dict[str, Any]:
    return {"if": _WITHOUT_NAME, "then": {"$ref": _references(slot, slots)[SLOTS[slot].default]}}


def _references(slot: Slot, slots: dict[str, Any]) -> dict[str, str]:
    references: dict[str, str] = slots[f"slot_{slot}"]["discriminator"]["mapping"]
    return references


def _meaning(slot: Slot) -> str:
    return first_paragraph(sys.modules[slot_class(default_part(slot)).__module__].__doc__)


def _without_marks(value: Any, slots: dict[str, Any]) -> Any:
    """Return a schema with a reference for each marked union of parts, whose definition is added to `slots`."""
    if isinstance(value, list):
        return [_without_marks(entry, slots) for entry in value]
    if not isinstance(value, dict):
        return value
    if _SLOT not in value:
        if "patternProperties" in value:
            value = {"additionalProperties": False, **value}
        return {key: entry if key == "default" else _without_marks(entry, slots) for key, entry in value.items()}
    slot, default = value[_SLOT]
    discriminator = value["discriminator"]
    key = f"slot_{slot}" if default == (SLOTS | NESTED_SLOTS)[slot].default else f"slot_{slot}_default_{default}"
    union = {
        "description": _meaning(slot),
        "default": {"name": default},
        "oneOf": [
            *({"$ref": part, "required": ["name"]} for part in discriminator["mapping"].values()),
            {**_WITHOUT_NAME, "anyOf": [{"$ref": part} for part in discriminator["mapping"].values()]},
        ],
        "discriminator": discriminator,
    }
    if slots.setdefault(key, union) != union:
        raise ValueError(f"two unions of parts would both be called {key}")
    others = {name: each for name, each in value.items() if name not in (_SLOT, "oneOf", "discriminator")}
    return {"$ref": f"#/$defs/{key}", **others}


class _Generator(GenerateJsonSchema):
    """Generator that adds the docstrings of fields, defaults that a function makes, and marks for slots."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Leave out titles, which would repeat the keys."""
        return False

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        """Describe a section or a part."""
        return _described(super().dataclass_schema(schema), schema["cls"])

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Describe a section."""
        return _described(super().model_schema(schema), schema["cls"])

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> JsonSchemaValue:
        """Describe what a validator of the raw value accepts: a part without a name, one value for a list of one."""
        made, check = super().function_before_schema(schema), cast(Any, schema["function"]["function"])
        if isinstance(check, WithName):
            return {**made, _SLOT: (check.slot, check.default)}
        if made.get("type") == "array" and (check is as_list or isinstance(check("a path"), tuple)):
            return {"anyOf": [made["items"], made]}
        return made


def _described(made: JsonSchemaValue, cls: type) -> JsonSchemaValue:
    """Add the docstring of a class to its schema, and to each property its own with its default."""
    made.pop("required", None)  # what a file leaves out, the recipe that it extends may set
    made["description"] = first_paragraph(cls.__doc__)
    if renamed := getattr(cls, "renamed", None):
        made["renamed"] = dict(renamed)
    meanings = docstrings(cls)
    for key, (name, default) in _fields(cls).items():
        about = made["properties"][key]
        if meaning := meanings.get(name):
            about["description"] = meaning
        if default is not PydanticUndefined and key != "name":
            about["default"] = _plain(default)
    return made


def _fields(cls: type) -> dict[str, tuple[str, Any]]:
    """Return the fields of a section or a part: key in the recipe -> name of the field, default."""
    if issubclass(cls, BaseModel):
        return {
            info.alias or name: (name, info.get_default(call_default_factory=True, validated_data={}))
            for name, info in cls.model_fields.items()
        }
    key_of = getattr(cls, "__pydantic_config__", {}).get("alias_generator", str)
    fields = {}
    for item in dataclasses.fields(cast(Any, cls)):
        made = item.default_factory() if item.default_factory is not dataclasses.MISSING else item.default
        fields[key_of(item.name)] = (item.name, PydanticUndefined if made is dataclasses.MISSING else made)
    return fields


def _plain(value: Any) -> Any:
    """Convert a default to JSON; a part is written as its name alone."""
    if isinstance(value, Part):
        return {"name": value.name}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return TypeAdapter(type(value)).dump_python(value, mode="json", by_alias=True)
