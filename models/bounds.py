"""Bounds of settings, checked where a recipe is read."""

from typing import Annotated

from pydantic import Field

Positive = Annotated[int, Field(ge=1)]
"""A count of which there must be one at least."""
