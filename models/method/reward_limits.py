"""Limits on the time of a reward, and the value used if it gives none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from models.base.bounds import LARGEST, Number, Positive, Share


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Handling of a reward that blocks, fails or returns a value that is not finite. Set under `limits:` of it."""

    seconds: Annotated[float, Field(gt=0, le=LARGEST)] = 300.0
    """Longest that the reward may take for the completions of one round."""
    retries: Annotated[int, Field(ge=0, le=100)] = 1
    """Number of further calls for a round in which it failed."""
    value: Number = 0.0
    """Reward of a completion whose value is still missing after that, before weighting; `rewards/LABEL/failures` counts
    them."""
    failed_share: Share = 0.5
    """A round fails if more than this share of its completions lacks a value."""
    patience: Positive = 3
    """Rounds in a row that may fail; with the last of them the run stops with an error."""


AS_USUAL = Limits()
