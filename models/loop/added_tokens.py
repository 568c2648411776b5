"""What a source adds to the prompts of a training: asked of all, of a part of them at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from models.loop.rollout import Problem
from models.loop.slots import Rollouts
from models.text.encoding import Codec

TOGETHER = 1 << 16
"""Problems that a source looks at together."""


def added_tokens(source: Rollouts, codec: Codec, problems: Sequence[Problem]) -> NDArray[np.int64]:
    """What `source.extra_tokens` says of each problem, [problems]."""
    parts = [
        source.extra_tokens(codec, problems[first : first + TOGETHER]) for first in range(0, len(problems), TOGETHER)
    ]
    return np.concatenate([np.empty(0, np.int64), *(np.array(part, np.int64) for part in parts)])
