"""What a reward may cost, and what stands in place of a value that it does not give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from models.bounds import LARGEST, Number, Positive, Share


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How a reward that hangs, breaks or gives no number is dealt with. Stands under `limits:` of a reward."""

    seconds: Annotated[float, Field(gt=0, le=LARGEST)] = 300.0
    """Longest that the reward may take for the completions of one round."""
    retries: Annotated[int, Field(ge=0, le=100)] = 1
    """How often it is asked again for a round in which it failed."""
    value: Number = 0.0
    """What a completion is worth whose value is missing after that, before weighting; `rewards/LABEL/failures` counts
    them."""
    failed_share: Share = 0.5
    """A round fails where more than this share of its completions lacks a value."""
    patience: Positive = 3
    """Rounds in a row that may fail; with the last of them the run stops, and says why."""


AS_USUAL = Limits()
