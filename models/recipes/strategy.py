"""Reader of an evaluation's strategy from a command's arguments: its name, and its settings among the overrides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import ConfigDict, ValidationError, create_model

from models.agents.strategy import Strategy
from models.base.errors import UserError
from models.method.registry import slot_type
from models.recipes.explain import explain
from models.recipes.layers import put_override

KEY: Literal["strategy"] = "strategy"
"""Key below which overrides are settings of the strategy."""


def read_strategy(name: str, overrides: Sequence[str]) -> tuple[Strategy, list[str]]:
    """Build the strategy `name` with its settings from `overrides`. Returns it, and the recipe's own overrides.

    Args:
        name: of a part of the slot `strategy`.
        overrides: `key.path=value` each; those below `strategy.` are its settings.

    Raises:
        UserError: no strategy has this name, or a setting is unknown to it or wrong.
    """
    raw: dict[str, Any] = {KEY: {"name": name}}
    own = [override for override in overrides if override.startswith(f"{KEY}.")]
    for override in own:
        put_override(raw, override)
    raw[KEY]["name"] = name
    config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    schema = create_model("Asked", __config__=config, strategy=(slot_type(KEY), ...))
    try:
        chosen: Strategy = vars(schema.model_validate(raw))[KEY]
    except ValidationError as error:
        raise UserError(explain(error, schema)) from None
    return chosen, [override for override in overrides if override not in own]
