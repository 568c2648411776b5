"""Penalty for repeated runs of n tokens, at each repeated token (paper 92, arXiv 2502.03373).

    value_t = -each if t is in a run of n tokens that occurred in the completion before, else 0

Repetition is the easiest way to exploit a reward for length. The penalty is given at the repeated tokens, so that a
token-level advantage (`gae`) penalises these and not the whole answer. A token in several repeated runs costs once.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from models.base.bounds import Positive
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import TokenReward
from models.method.rollout import Rollout
from models.parts.shared.written_tokens import spread_rows


def repeated(ids: Sequence[int], n: int) -> list[bool]:
    """Return whether each token is in a run of `n` that also began earlier in `ids`, [tokens]."""
    seen: set[tuple[int, ...]] = set()
    flags, until = [False] * len(ids), 0
    for start in range(len(ids) - n + 1):
        run = tuple(ids[start : start + n])
        if run in seen:
            begin = max(start, until)
            until = start + n
            flags[begin:until] = [True] * (until - begin)
        seen.add(run)
    return flags


@part("repetition")
class Repetition(TokenReward):
    """Penalty for repeated runs of the policy's own tokens; tokens of the environment are skipped, not boundaries."""

    n: Positive = 40
    """Length of a run, tokens."""
    each: NonNegativeFloat = 0.05
    """Cost of each token in a repeated run."""

    def tokens(self, resources: RunResources, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """Return values of at most zero, [completions] tensors of [tokens of it]."""
        rows = [-self.each * torch.tensor(repeated(rollout.written_ids, self.n)).float() for rollout in rollouts]
        return spread_rows(rows, rollouts)
