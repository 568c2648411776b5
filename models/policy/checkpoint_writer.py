"""Checkpoints written behind the loop's back: it waits for a copy of the tensors, not for the disk.

The copies lie in the processor's memory, as large as what is kept, and are used again for the next checkpoint. What a
file holds is what the models were when the loop asked, whatever they have become since. A kill at any moment leaves
the checkpoints before it whole, as `models.policy.checkpoint` writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType, TracebackType

import torch
from torch import Tensor, nn

from models.policy.checkpoint import BEST, keep_best, restore_best, state_of, trainable, write_checkpoint
from models.policy.checkpoint_parts import parts_of
from models.ranks import ALONE, Ranks


class CheckpointWriter:
    """Writes the checkpoints of one training, one after the other; use it in a `with` statement, which waits for the
    last one.

    Args:
        root: folder of all checkpoints of the training.
        keep: how many stay.
        ranks: who train, and write each its parts.
    """

    def __init__(self, root: Path, keep: int = 2, ranks: Ranks = ALONE) -> None:
        self._root, self._keep, self._ranks = root, keep, ranks
        self._behind = ranks.apart()
        """The same ranks, as the threads that write speak to each other."""
        # As in models.loop.ahead: a new thread must know of as many threads of torch as the others.
        self._pool = ThreadPoolExecutor(1, "checkpoint", initializer=torch.get_num_threads)
        self._copies: dict[str, dict[str, Tensor]] = {}
        self._pending: dict[str, Future[object]] = {}

    def save(
        self,
        round_number: int,
        modules: Mapping[str, nn.Module],
        optimisers: Mapping[str, torch.optim.Optimizer],
        updates: Mapping[str, int],
        files: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        """Begin to write the state after `round_number` rounds; waits for the checkpoint before, if it is not written.

        Args:
            round_number: rounds finished.
            modules: what learns or moves, by name.
            optimisers: of the models that learn, by the same names.
            updates: optimiser steps that each has taken.
            files: what else is to be kept, by the names of its files.

        Raises:
            UserError: what was begun before could not be written.
        """
        self.raise_failed()
        self._finish("round")
        held = state_of(modules, optimisers, self._ranks)
        state = {name: self._copied(name, tensors) for name, tensors in held.items()}
        self._begin(
            "round",
            lambda: write_checkpoint(self._root, round_number, state, dict(updates), files, self._keep, self._behind),
        )

    def keep_best(self, policy: nn.Module) -> None:
        """Begin to write the weights of `policy` that can change, in place of those kept before.

        Raises:
            UserError: what was begun before could not be written.
        """
        self.raise_failed()
        self._finish(BEST)
        tensors = self._copied(BEST, parts_of(trainable(policy), self._ranks))
        self._begin(BEST, lambda: keep_best(self._root, tensors, self._behind))

    def restore_best(self, policy: nn.Module) -> None:
        """Give `policy` the weights that were kept last, in place.

        Raises:
            UserError: they could not be written.
        """
        self.wait()
        restore_best(self._root, policy)

    def raise_failed(self) -> None:
        """Raise what has gone wrong behind the loop's back; waits for nothing.

        Raises:
            UserError: no space left; the older checkpoints are untouched.
        """
        done = [what for what, future in self._pending.items() if future.done()]
        everywhere = self._ranks.everyone(done)  # what one has heard of all must raise
        for what in done:
            if all(what in theirs for theirs in everywhere):
                self._finish(what)

    @property
    def writing(self) -> bool:
        """Whether something that was begun is not on the disk yet."""
        return not all(future.done() for future in self._pending.values())

    def wait(self) -> None:
        """Wait until all that was begun is on the disk.

        Raises:
            UserError: no space left; the older checkpoints are untouched.
        """
        for what in list(self._pending):
            self._finish(what)

    def __enter__(self) -> CheckpointWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True)
        if error is None:
            self.wait()

    def _begin(self, what: str, write: Callable[[], object]) -> None:
        self._pending[what] = self._pool.submit(write)

    def _finish(self, what: str) -> None:
        future = self._pending.pop(what, None)
        if future is not None:
            future.result()

    def _copied(self, name: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The values as they are now, in memory of the last copy where that has their shape."""
        before, copies = self._copies.get(name, {}), {}
        for key, value in tensors.items():
            room = before.get(key)
            if room is None or room.shape != value.shape or room.dtype != value.dtype:
                room = torch.empty(value.shape, dtype=value.dtype, pin_memory=value.is_cuda)
            copies[key] = room.copy_(value.detach(), non_blocking=True)
        if any(value.is_cuda for value in tensors.values()):
            torch.cuda.synchronize()
        self._copies[name] = copies
        return copies
