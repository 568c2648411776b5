"""Environments of other ecosystems, which run in a process of another interpreter or behind an address."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import WithJsonSchema

AnyArguments = Annotated[
    dict[str, Any],
    WithJsonSchema({"type": "object", "additionalProperties": {"$comment": "any value"}}),
]
"""Arguments whose names and values only the other ecosystem knows."""
