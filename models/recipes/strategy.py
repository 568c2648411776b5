"""Reader of an evaluation's strategy from a command's arguments: its name, and its settings among the overrides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import ConfigDict, ValidationError, create_model

from models.agents.strategy import Strategy
from models.base.errors import UserError
from models.method.registry import slot_type
from models.recipes.explain import explain
from models.recipes.layers import put_override

KEY: Literal["strategy"] = "strategy"
"""Key below which overrides are settings of the strategy."""
CONFIG = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
"""Configuration of models of settings that a command reads."""


def read_strategy(name: str, overrides: Sequence[str]) -> tuple[Strategy, list[str]]:
    """Build the strategy `name` with its settings from `overrides`. Returns it, and the recipe's own overrides.

    Args:
        name: name of a part of the slot `strategy`.
        overrides: `key.path=value` each; those below `strategy.` are its settings.

    Raises:
        UserError: no strategy has this name, or a setting is unknown to it or wrong.
    """
    chosen: Strategy
    chosen, others = read_section(KEY, slot_type(KEY), overrides, {"name": name})
    return chosen, others


def read_section(
    key: str, kind: Any, overrides: Sequence[str], fixed: Mapping[str, Any] | None = None
) -> tuple[Any, list[str]]:
    """Read a section that a command has in addition to the recipe's. Returns it, and the recipe's own overrides.

    Args:
        key: key of the section.
        kind: type of the section, for pydantic.
        overrides: `key.path=value` each; those below the key are settings of the section.
        fixed: settings that overrides do not change.

    Raises:
        UserError: a setting is unknown or wrong.
    """
    raw: dict[str, Any] = {key: {}}
    own = [override for override in overrides if override.startswith(f"{key}.")]
    for override in own:
        put_override(raw, override)
    raw[key] |= fixed or {}
    fields: dict[str, Any] = {key: (kind, ...)}
    schema = create_model("CommandSection", __config__=CONFIG, **fields)
    try:
        section = vars(schema.model_validate(raw))[key]
    except ValidationError as error:
        raise UserError(explain(error, schema)) from None
    return section, [override for override in overrides if override not in own]
