"""Check, before anything is generated, that the longest rows of a training fit into the token budget."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from models.base.errors import UserError
from models.method.objective import Objective
from models.method.problem import Problem
from models.method.problem_rows import prompt_lengths
from models.method.rollout_source import Rollouts
from models.text.encoding import Codec

TOGETHER = 1 << 16
"""Number of problems per batch."""


def added_tokens(source: Rollouts, codec: Codec, problems: Sequence[Problem]) -> NDArray[np.int64]:
    """Return `source.extra_tokens` of each problem, [problems], computed in batches."""
    parts = [
        source.extra_tokens(codec, problems[first : first + TOGETHER]) for first in range(0, len(problems), TOGETHER)
    ]
    return np.concatenate([np.empty(0, np.int64), *(np.array(part, np.int64) for part in parts)])


def require_room(
    problems: Sequence[Problem], source: Rollouts, objective: Objective, codec: Codec, budget: int
) -> None:
    """Refuse a token budget that is smaller than the longest possible row, before anything is generated.

    Raises:
        UserError: a prompt, its completions that are compared and the tokens that the source adds exceed `budget`.
    """
    together = 2 if objective.level == "pair" else 1
    if objective.level == "group":
        together = source.largest_group(problems)
    prompts, extras = prompt_lengths(problems), added_tokens(source, codec, problems)
    rows = prompts + together * source.max_tokens + extras
    if (needed := int(rows.max())) > budget:
        prompt, extra = max(zip(prompts[rows == needed].tolist(), extras[rows == needed].tolist(), strict=True))
        compared = f", the {together} completions that are compared are in one row" if together > 1 else ""
        added = f", rollouts {source.name} adds {extra}" if extra else ""
        raise UserError(
            f"schedule.token_budget is {budget}, smaller than its longest row: the prompt has {prompt} tokens, "
            f"rollouts.max_tokens is {source.max_tokens}{compared}{added}; make it at least {needed}"
        )
