"""Reading a model whose weights are cut over the ranks: inside they are whole.

Whether a model is cut (`models.learner.sharding`) decides how it is read: one that is cut is read by all ranks in step,
one that is not by whoever asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from torch import nn

from models.ranks import ALONE, Ranks, together

T = TypeVar("T")
METHOD = "read_whole"
"""The root's method in which its own weights are whole, beside its `forward`."""


@dataclass
class _Cut:
    ranks: Ranks
    root: Any
    """The module whose method `METHOD` puts the weights together that stand in no layer."""
    reading: bool = False


_CUT: WeakKeyDictionary[nn.Module, _Cut] = WeakKeyDictionary()


def note_cut(names: Iterable[nn.Module], root: nn.Module, ranks: Ranks) -> None:
    """Remember that a model is cut over `ranks`.

    Args:
        names: the modules that it is read by: with adapters around it, without, its backbone.
        root: the module that has `METHOD`.
        ranks: who holds its parts.
    """
    cut = _Cut(ranks, root)
    for module in names:
        _CUT[module] = cut


def ranks_of(model: nn.Module) -> Ranks:
    """Who reads `model` together: `ALONE` where it is whole.

    Raises:
        RuntimeError: it is cut, and this runs on the first rank alone.
    """
    cut = _CUT.get(model)
    if cut is None:
        return ALONE
    together(f"a {type(model).__name__}")
    return cut.ranks


def with_whole_weights(model: nn.Module, read: Callable[[], T]) -> T:
    """What `read` gives, a tensor or a tuple of tensors and None, while the weights of `model` are whole.

    Gradient flows through those tensors and nothing else: what is kept of the weights is gone afterwards. Inside of
    another call for the same model it is that call.
    """
    cut = _CUT.get(model)
    if cut is None or cut.reading:
        return read()
    together(f"a {type(model).__name__}")
    cut.reading = True
    try:
        said: T = getattr(cut.root, METHOD)(read)
    finally:
        cut.reading = False
    return said
