"""A step that runs out of memory is made again in a way that needs less and gives the same gradient."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch

from models.errors import UserError

Result = TypeVar("Result")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device or this machine had no memory left for a tensor."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error)


@dataclass(frozen=True)
class Way:
    """How a gradient is made; it changes memory and time alone."""

    budget: int
    """Tokens of a packed row at most."""
    recompute: bool
    """Whether layers are read again for their backward pass (`models.learner.recompute`)."""

    def __str__(self) -> str:
        return f"rows of {self.budget} tokens" + (" and gradient checkpointing" if self.recompute else "")


def ways(first: Way, least: Callable[[], int], *, able: bool) -> Iterator[Way]:
    """`first`, then with layers read again, where the model is `able`, then with rows of half as many tokens, and again
    half as many, down to `least` tokens."""
    budget, recompute = first.budget, first.recompute
    yield first
    if able and not recompute:
        recompute = True
        yield Way(budget, recompute)
    while budget > (shortest := least()):
        budget = max(budget // 2, shortest)
        yield Way(budget, recompute)


def within_memory(
    make: Callable[[Way], Result], tried: Iterator[Way], undo: Callable[[], None], what: str
) -> tuple[Result, Way]:
    """What `make` gives in the first of some ways for which there is memory.

    Args:
        make: reads and differentiates.
        tried: the ways, each needing less than the one before; at least one.
        undo: takes back what an attempt has left behind, such as a part of the gradients.
        what: which step it is, for the message.

    Returns:
        The result, and the way that it was made.

    Raises:
        UserError: memory runs out in the last way too.
    """
    way = next(tried)
    while True:
        try:
            return make(way), way
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            cause = error.with_traceback(None)  # the frames would keep the attempt's memory
        undo()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        following = next(tried, None)
        if following is None:
            raise UserError(
                f"{what}: out of memory with {way}, and a row cannot be shorter: ask for shorter completions, "
                "or take a smaller model or a larger device"
            ) from cause
        warnings.warn(f"{what}: out of memory with {way}; made again with {following}", stacklevel=2)
        way = following
