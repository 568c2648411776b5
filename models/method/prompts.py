"""The prompts of a round, drawn from the seed and the round's number alone, and the texts of prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from models.base.seeds import seed_of
from models.method.problem_rows import taken
from models.method.rollout import Problem


def prompts_of_round(problems: Sequence[Problem], count: int, number: int, seed: int) -> list[Problem]:
    """Return the prompts of round `number`: every problem once an epoch, in an order drawn from seed and epoch."""
    chosen = []
    for position in range(number * count, (number + 1) * count):
        epoch, place = divmod(position, len(problems))
        chosen.append(problems[int(_order(len(problems), seed, "order", epoch)[place])])
    return chosen


def first_drawn(problems: Sequence[Problem], draws: int, seed: int) -> Sequence[Problem]:
    """Return the first `draws` prompts of the rounds, each once, in the order of their first round."""
    return taken(problems, _order(len(problems), seed, "order", 0)[:draws])


def further_prompts(problems: Sequence[Problem], taken: Sequence[Problem], number: int, seed: int) -> Iterator[Problem]:
    """Iterate over problems that round `number` has not drawn yet, in an order drawn from seed and round.

    Args:
        problems: all that there are.
        taken: those that the round has drawn.
        number: of the round.
        seed: of the run.
    """
    known = {problem.id for problem in taken}
    order = _order(len(problems), seed, "refill", number)
    others = (problems[int(place)] for place in order)
    return (problem for problem in others if problem.id not in known)


def texts_of(problems: Sequence[Problem]) -> tuple[list[str], list[str]]:
    """List the prompts of problems and their system messages, as `models.text.encoding.Codec.prompts` takes them."""
    return [problem.prompt for problem in problems], systems_of(problems)


def systems_of(problems: Sequence[Problem]) -> list[str]:
    """List the system message of each problem, [problems]."""
    return [problem.system for problem in problems]


@lru_cache(maxsize=4)
def _order(size: int, seed: int, purpose: str, number: int) -> NDArray[np.int32]:
    generator = torch.Generator().manual_seed(seed_of(seed, purpose, number))
    order: NDArray[np.int32] = torch.randperm(size, generator=generator).numpy().astype(np.int32)
    return order
