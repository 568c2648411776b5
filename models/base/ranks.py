"""The processes that learn together (ranks). A run of one process is the case `ALONE`, which needs no process group.

Every rank runs the same code on the same rollouts, in the same order: single program, multiple data. Work that only one
of them may do (call an engine, run a verifier, write a page) is done by the first, which sends the result to the
others.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor

from models.base.errors import UserError

T = TypeVar("T")

_FIRST_ALONE: ContextVar[bool] = ContextVar("first_alone", default=False)


@dataclass(frozen=True)
class Ranks:
    """This process (rank) among those that learn together. All ranks must call every method, in the same order."""

    number: int = 0
    """Number of this process, from 0."""
    count: int = 1
    group: Any = None
    """Process group for messages, which works on the CPU; None: the default group."""

    @property
    def first(self) -> bool:
        """Whether this is the first rank, which alone calls engines and verifiers and writes pages."""
        return self.number == 0

    def from_first(self, make: Callable[[], T]) -> T:
        """Run `make` on the first rank and return its result on all ranks; its exception is raised on all ranks.

        `make` runs only on the first rank: it must not read a model that is sharded over the ranks (`require_all_ranks`
        checks that).
        """
        if self.count == 1:
            return make()
        message: list[Any] = [None, None]
        if self.first:
            try:
                with _first_alone():
                    message[0] = make()
            except BaseException as error:
                torch.distributed.broadcast_object_list([None, _portable(error)], 0, group=self.group)
                raise
        torch.distributed.broadcast_object_list(message, 0, group=self.group)
        if message[1] is not None:
            raise message[1]
        result: T = message[0]
        return result

    def all_gather(self, mine: T) -> list[T]:
        """Gather the value `mine` of every rank, in the order of the ranks."""
        if self.count == 1:
            return [mine]
        gathered: list[Any] = [None] * self.count
        torch.distributed.all_gather_object(gathered, mine, group=self.group)
        return gathered

    def sums(self, mine: Mapping[str, float]) -> dict[str, float]:
        """Sum the values of each name over the ranks, in their order, so that all ranks get equal results."""
        total: dict[str, float] = {}
        for values in self.all_gather(dict(mine)):
            for name, value in values.items():
                total[name] = total.get(name, 0.0) + value
        return total

    def sum(self, mine: Tensor) -> Tensor:
        """Sum a tensor over the ranks, in their order, on the device of `mine`; no gradient flows."""
        if self.count == 1:
            return mine
        return torch.stack(self.all_gather(mine.cpu())).sum(0).to(mine.device)

    def separate_group(self) -> Ranks:
        """Return the same ranks with a separate process group, for use in another thread.

        Two threads that share one group would mix up their messages.
        """
        return self if self.count == 1 else replace(self, group=torch.distributed.new_group(backend="gloo"))


ALONE = Ranks()


def listening_at(host: str, port: int = 0) -> socket.socket:
    """Open a socket for `meet` that listens only on `host`; on a free port if `port` is 0."""
    return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


def meet(
    number: int, count: int, address: tuple[str, int], timeout: timedelta, listening: socket.socket | None = None
) -> Any:
    """Open the `TCPStore` through which ranks find one another, for `init_process_group`.

    Torch by itself would listen on all addresses of the machine.

    Args:
        number: number of this rank.
        count: number of ranks that meet; the call returns when all have connected.
        address: address that the first rank listens on.
        timeout: maximum time that they wait for one another.
        listening: socket of the first rank (`listening_at`), which the store takes over; None on the other ranks.
    """
    host, port = address
    descriptor = None if listening is None else listening.detach()  # torch closes it, with the store
    store: Any = torch.distributed.TCPStore  # type: ignore[attr-defined]  # its stubs do not export it
    return store(host, port, count, listening is not None, timeout, master_listen_fd=descriptor)


def joined_ranks() -> Ranks:
    """Return this process as a rank of torch's default process group, with a Gloo group for messages."""
    number, count = torch.distributed.get_rank(), torch.distributed.get_world_size()
    return Ranks(number, count).separate_group()


def require_all_ranks(what: str) -> None:
    """Check that all ranks run this code, and not only the first within `from_first`.

    Args:
        what: object that is read, for the message.

    Raises:
        RuntimeError: this runs on the first rank alone.
    """
    if _FIRST_ALONE.get():
        raise RuntimeError(
            f"{what} is cut over several processes and was read by the first alone; "
            "a reward that reads the learner's models sets reads_learner = True"
        )


@contextmanager
def _first_alone() -> Iterator[None]:
    token = _FIRST_ALONE.set(True)
    try:
        yield
    finally:
        _FIRST_ALONE.reset(token)


def _portable(error: BaseException) -> BaseException:
    """Convert `error` into a form that another process can raise."""
    return error if isinstance(error, UserError) else RuntimeError(f"{type(error).__name__}: {error}")


def whole(tensor: Tensor) -> Tensor:
    """Gather a sharded tensor on all ranks; any other is returned unchanged."""
    full_tensor = getattr(tensor, "full_tensor", None)
    return tensor if full_tensor is None else full_tensor()


def own_part(tensor: Tensor) -> Tensor:
    """Return this rank's part of a sharded tensor, sharing its memory; any other is returned unchanged."""
    part = getattr(tensor, "to_local", None)
    return tensor if part is None else part()


def cut_like(value: Tensor, place: Tensor) -> Tensor:
    """Shard `value`, which every rank has whole, in the same way as `place`; unchanged if `place` is not sharded."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(place, DTensor):
        return value
    return distribute_tensor(value.to(place.device), place.device_mesh, place.placements, src_data_rank=None)
