"""Tokens that a source adds to the prompts of a training, computed for all prompts in batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from models.method.rollout import Problem
from models.method.slots import Rollouts
from models.text.encoding import Codec

TOGETHER = 1 << 16
"""Problems of one batch."""


def added_tokens(source: Rollouts, codec: Codec, problems: Sequence[Problem]) -> NDArray[np.int64]:
    """Return `source.extra_tokens` of each problem, [problems]."""
    parts = [
        source.extra_tokens(codec, problems[first : first + TOGETHER]) for first in range(0, len(problems), TOGETHER)
    ]
    return np.concatenate([np.empty(0, np.int64), *(np.array(part, np.int64) for part in parts)])
