"""A step that runs out of memory is made again with smaller rows: they bound memory and change no result."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import TypeVar

import torch

from models.errors import UserError

Result = TypeVar("Result")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device or this machine had no memory left for a tensor."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error)


def within_memory(
    make: Callable[[int], Result],
    budget: int,
    least: Callable[[], int],
    undo: Callable[[], None],
    what: str,
    setting: str,
) -> tuple[Result, int]:
    """What `make` gives for rows of `budget` tokens; where memory runs out, for half as many, and again.

    Args:
        make: reads and differentiates rows of at most so many tokens.
        budget: tokens of a row to begin with.
        least: tokens of the longest row that cannot be cut.
        undo: takes back what an attempt has left behind, such as a part of the gradients.
        what: which step it is, for the message.
        setting: what the budget is called in the recipe.

    Returns:
        The result, and the budget that it was made with.

    Raises:
        UserError: memory runs out with the shortest rows there can be.
    """
    while True:
        try:
            return make(budget), budget
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            if budget <= least():
                raise UserError(
                    f"{what}: out of memory with rows of {budget} tokens, and the longest cannot be cut: "
                    "ask for shorter completions, or take a smaller model or a larger device"
                ) from error
        # Here the error is gone, and with it the frames that would keep the attempt's memory.
        undo()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        halved = max(budget // 2, least())
        warnings.warn(f"{what}: out of memory with {setting} {budget}; made again with {halved}", stacklevel=2)
        budget = halved
