"""Access to the whole weights of a model that is sharded over the ranks.

Whether a model is sharded (`models.learner.sharding`) decides how it is read: all ranks read a sharded one in step, any
rank reads another by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from torch import nn

from models.base.ranks import ALONE, Ranks, require_all_ranks

T = TypeVar("T")
METHOD = "read_whole"
"""The root's method in which its own weights are whole, in addition to its `forward`."""


@dataclass
class _Cut:
    ranks: Ranks
    root: Any
    """The module whose method `METHOD` gathers the weights that are not in a layer."""
    reading: bool = False


_CUT: WeakKeyDictionary[nn.Module, _Cut] = WeakKeyDictionary()


def register_sharded(modules: Iterable[nn.Module], root: nn.Module, ranks: Ranks) -> None:
    """Record that a model is sharded over `ranks`.

    Args:
        modules: modules through which it is read: the model with adapters, without them, and its backbone.
        root: the module that has `METHOD`.
        ranks: those that hold its parts.
    """
    cut = _Cut(ranks, root)
    for module in modules:
        _CUT[module] = cut


def ranks_of(model: nn.Module) -> Ranks:
    """Return the ranks that `model` is sharded over; `ALONE` if it is whole.

    Raises:
        RuntimeError: it is sharded, and this runs on the first rank alone.
    """
    cut = _CUT.get(model)
    if cut is None:
        return ALONE
    require_all_ranks(f"a {type(model).__name__}")
    return cut.ranks


def with_whole_weights(model: nn.Module, read: Callable[[], T]) -> T:
    """Call `read` while the weights of `model` are whole. Returns its result, a tensor or a tuple of tensors and None.

    Gradient flows only through those tensors: any kept weights are gone afterwards. A call inside another call for the
    same model is part of that call.
    """
    cut = _CUT.get(model)
    if cut is None or cut.reading:
        return read()
    require_all_ranks(f"a {type(model).__name__}")
    cut.reading = True
    try:
        result: T = getattr(cut.root, METHOD)(read)
    finally:
        cut.reading = False
    return result
