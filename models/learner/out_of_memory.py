"""Retries of a step that runs out of memory, with settings that need less memory and give the same gradient."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import nn

from models.base.errors import UserError
from models.base.memory import is_out_of_memory
from models.learner.recompute import recomputing
from models.learner.whole_weights import ranks_of

Result = TypeVar("Result")


class NeedsLess(UserError):
    """Error of a rank that ran out of memory and cannot retry alone, because all ranks make the step together."""

    budget: int
    """Tokens of a packed row to continue with."""
    recompute: bool
    """Whether to continue with gradient checkpointing."""


@dataclass(frozen=True)
class GradientPlan:
    """Settings for the computation of a gradient; they affect only memory and time."""

    budget: int
    """Tokens of a packed row at most."""
    recompute: bool
    """Whether layers are computed again for their backward pass (`models.learner.recompute`)."""

    def __str__(self) -> str:
        return f"rows of {self.budget} tokens" + (" and gradient checkpointing" if self.recompute else "")


def within_memory(
    make: Callable[[int], Result],
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    first: GradientPlan,
    least: Callable[[], int],
    what: str,
    *,
    able: bool,
) -> tuple[Result, GradientPlan]:
    """Call `make`, and repeat it with less memory as long as memory runs out.

    The first attempt is made with `first`, the next with gradient checkpointing, and the others with rows of half as
    many tokens each time.

    Args:
        make: largest number of tokens of a row -> the result; it computes the gradient in such rows.
        model: the model that is differentiated.
        optimiser: optimiser of its weights; gradients left by a failed attempt are cleared.
        first: settings of the first attempt.
        least: tokens of the longest row that cannot be cut; called if memory has run out.
        what: name of the step, for the message.
        able: whether gradient checkpointing may be tried if `first` does not use it.

    Returns:
        The result, and the settings that it was computed with.

    Raises:
        UserError: memory runs out in the last attempt too.
        NeedsLess: the model is sharded over several ranks; raised on the rank that ran out, which ends the step for
            all of them.
    """
    tried = _ways(first, least, able)
    way = next(tried)
    while True:
        try:
            with recomputing(model, way.recompute):
                return make(way.budget), way
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            cause = error.with_traceback(None)  # the frames would keep the attempt's memory
        optimiser.zero_grad(set_to_none=True)
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        following = next(tried, None)
        if following is None:
            raise UserError(
                f"{what}: out of memory with {way}, and a row cannot be shorter: ask for shorter completions, "
                "or take a smaller model or a larger device"
            ) from cause
        if ranks_of(model).count > 1:
            less = NeedsLess(f"{what}: out of memory with {way}; to be made again with {following}")
            less.budget, less.recompute = following.budget, following.recompute
            raise less from cause
        warnings.warn(f"{what}: out of memory with {way}; made again with {following}", stacklevel=2)
        way = following


def _ways(first: GradientPlan, least: Callable[[], int], able: bool) -> Iterator[GradientPlan]:
    """Iterate over the settings to try, each of which needs less memory than the one before."""
    budget, recompute = first.budget, first.recompute
    yield first
    if able and not recompute:
        recompute = True
        yield GradientPlan(budget, recompute)
    while budget > (shortest := least()):
        budget = max(budget // 2, shortest)
        yield GradientPlan(budget, recompute)
