"""Checkpoints written in the background: the loop waits for a copy of the tensors, not for the disk.

The copies are in CPU memory, take as much memory as the checkpoint, and are reused for the next checkpoint. A file
holds the state of the models at the time of the call, whatever changed since. A kill at any moment leaves the
checkpoints before it whole, as `models.policies.checkpoint` writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType, TracebackType

import torch
from torch import Tensor, nn

from models.base.ranks import ALONE, Ranks
from models.policies.checkpoint import BEST, keep_best, restore_best, state_of, trainable, write_checkpoint
from models.policies.checkpoint_parts import parts_of


class CheckpointWriter:
    """Background writer of the checkpoints of one training; its `with` statement waits for the last one.

    Args:
        root: folder of all checkpoints of the training.
        keep: number of checkpoints that stay.
        ranks: ranks that train, and write their parts.
    """

    def __init__(self, root: Path, keep: int = 2, ranks: Ranks = ALONE) -> None:
        self._root, self._keep, self._ranks = root, keep, ranks
        self._writer_ranks = ranks.separate_group()
        """The same ranks, with a separate channel for the writer threads."""
        # As in models.training.ahead: a new thread must use the same number of torch threads as the others.
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
        """Start to write the state after `round_number` rounds, after waiting for the previous checkpoint.

        Args:
            round_number: rounds finished.
            modules: models that learn or move, by name.
            optimisers: optimisers of the models that learn, by the same names.
            updates: optimiser steps that each has taken.
            files: contents of other files of the checkpoint, by name.

        Raises:
            UserError: an earlier write failed.
        """
        self.raise_failed()
        self._finish("round")
        current_state = state_of(modules, optimisers, self._ranks)
        state = {name: self._copied(name, tensors) for name, tensors in current_state.items()}
        self._begin(
            "round",
            lambda: write_checkpoint(
                self._root, round_number, state, dict(updates), files, self._keep, self._writer_ranks
            ),
        )

    def keep_best(self, policy: nn.Module) -> None:
        """Start to write the trainable weights of `policy` as the best ones, replacing those stored before.

        Raises:
            UserError: an earlier write failed.
        """
        self.raise_failed()
        self._finish(BEST)
        tensors = self._copied(BEST, parts_of(trainable(policy), self._ranks))
        self._begin(BEST, lambda: keep_best(self._root, tensors, self._writer_ranks))

    def restore_best(self, policy: nn.Module) -> None:
        """Load the stored best weights into `policy`, in place.

        Raises:
            UserError: they could not be written.
        """
        self.wait()
        restore_best(self._root, policy)

    def raise_failed(self) -> None:
        """Raise the error of a background write that has failed, without waiting.

        Raises:
            UserError: no space left; the older checkpoints are untouched.
        """
        done = [name for name, future in self._pending.items() if future.done()]
        done_by_rank = self._ranks.all_gather(done)  # a failure that one rank knows must be raised on all
        for name in done:
            if all(name in names for names in done_by_rank):
                self._finish(name)

    @property
    def writing(self) -> bool:
        """Whether a started write has not ended yet."""
        return not all(future.done() for future in self._pending.values())

    def wait(self) -> None:
        """Wait until all started writes are on the disk.

        Raises:
            UserError: no space left; the older checkpoints are untouched.
        """
        for name in list(self._pending):
            self._finish(name)

    def __enter__(self) -> CheckpointWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True)
        if error is None:
            self.wait()

    def _begin(self, name: str, write: Callable[[], object]) -> None:
        self._pending[name] = self._pool.submit(write)

    def _finish(self, name: str) -> None:
        future = self._pending.pop(name, None)
        if future is not None:
            future.result()

    def _copied(self, name: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return copies of the current values, in the memory of the last copy if that has their shape."""
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
