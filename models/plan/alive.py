"""Bytes of the tensors that are alive while a block runs, real ones or such as only have shapes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Alive(TorchDispatchMode):
    """Counts storages that operations make inside of a `with` block, and notices when they are freed.

    What a kernel takes for itself and gives back before it returns is not seen.
    """

    def __init__(self, already: Iterable[Tensor] = ()) -> None:
        """Nothing is counted yet.

        Args:
            already: tensors that stand for themselves, such as weights: they are not counted.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = 0
        """Bytes alive, of those made inside of the block."""
        self.most = 0
        """The most there ever were."""
        self._known: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        for tensor in already:
            self._note(tensor, counted=False)

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation and count what it made."""
        made = func(*args, **(kwargs or {}))
        for value in tree_leaves(made):
            if isinstance(value, Tensor):
                self._note(value)
        return made

    def _note(self, tensor: Tensor, counted: bool = True) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._known:
            return
        size = storage.nbytes() if counted else 0
        self.now += size
        self.most = max(self.most, self.now)

        def freed(_: object) -> None:
            self.now -= size
            self._known.pop(key, None)

        self._known[key] = weakref.ref(storage, freed)
