"""Which prompts a round has: drawn from the seed and the round's number alone, whatever was done before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import torch

from models.loop.rollout import Problem
from models.seeds import seed_of


def prompts_of_round(problems: Sequence[Problem], count: int, number: int, seed: int) -> list[Problem]:
    """The prompts of round `number`: every problem once an epoch, in an order drawn from seed and epoch."""
    chosen = []
    for position in range(number * count, (number + 1) * count):
        epoch, place = divmod(position, len(problems))
        chosen.append(problems[_order(len(problems), seed, "order", epoch)[place]])
    return chosen


def further_prompts(problems: Sequence[Problem], taken: Sequence[Problem], number: int, seed: int) -> Iterator[Problem]:
    """Problems that round `number` has not drawn yet, in an order drawn from seed and round.

    Args:
        problems: all that there are.
        taken: those that the round has drawn.
        number: of the round.
        seed: of the run.
    """
    known = {problem.id for problem in taken}
    return (
        problems[place] for place in _order(len(problems), seed, "refill", number) if problems[place].id not in known
    )


@lru_cache(maxsize=4)
def _order(size: int, seed: int, purpose: str, number: int) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(seed_of(seed, purpose, number))
    return tuple(torch.randperm(size, generator=generator).tolist())
