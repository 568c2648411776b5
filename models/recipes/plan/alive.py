"""Counter of the bytes of live tensors while a block runs, for real tensors or tensors that only have shapes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Alive(TorchDispatchMode):
    """Counter of the bytes of tensors that operations make inside a `with` block and that are not freed yet.

    Memory that a kernel allocates and frees before it returns is not seen.
    """

    def __init__(self, already: Iterable[Tensor] = ()) -> None:
        """Begin with a count of zero.

        Args:
            already: tensors that are not counted, such as weights.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = 0
        """Bytes alive, of those made inside of the block."""
        self.most = 0
        """Largest number of bytes so far."""
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
