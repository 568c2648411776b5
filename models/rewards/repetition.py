"""Tokens that say again what was said cost: a penalty for repeated runs of n tokens (paper 92, arXiv 2502.03373).

    value_t = -each where t lies in a run of n tokens that stood in the completion before, else 0

A reward that pays for length is met most cheaply by repetition. The penalty stands at the tokens that repeat, so that
an advantage by token (`gae`) blames these and not the whole answer. A token that several repeated runs hold costs once.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from models.bounds import Positive
from models.formulas.written_tokens import spread_rows
from models.loop.rollout import Rollout
from models.loop.slots import TokenReward
from models.loop.world import World
from models.parts import part


def repeated(ids: Sequence[int], n: int) -> list[bool]:
    """Which tokens lie in a run of `n` that began earlier in `ids` too, [tokens]."""
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
    """What the policy says again, in its own tokens. No environment's token counts, nor does it part two of its own."""

    n: Positive = 40
    """Tokens of a run."""
    each: NonNegativeFloat = 0.05
    """What a token costs that lies in a repeated one."""

    def tokens(self, world: World, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """At most zero, [completions] tensors of [tokens of it]."""
        rows = [-self.each * torch.tensor(repeated(rollout.said, self.n)).float() for rollout in rollouts]
        return spread_rows(rows, rollouts)
