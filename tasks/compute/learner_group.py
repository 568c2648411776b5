"""A group of learners in separate processes, started together and restarted together if one process is gone.

Each is a rank of the joint work: `models.training.train.train`, or a fit of `models.training.fits`. The first rank
reports its rounds through a mailbox to this process, which alone records them. A group whose processes end resumes from
its last checkpoint in fresh processes, or begins again if it has none, and ends with the same weights as without the
failure. A group that runs out of memory continues in the same way with shorter rows.
"""

from __future__ import annotations

import os
import socket
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

import psutil
import torch

from models.base.errors import UserError
from models.base.images import open_table, opened_tables
from models.base.placement import PlacementSettings
from models.base.ranks import Ranks, joined_ranks, listening_at, meet
from models.engines.engine import Engine
from models.engines.hosted import Order
from models.learner.out_of_memory import NeedsLess
from models.policies.build import first_line
from models.training.train import OpenEngine
from models.training.watchers import Watchers
from tasks.compute import cluster
from tasks.compute.cluster import Cluster, Gone

RESTARTS = 3
"""Restarts of the group for lost processes that are allowed without a new checkpoint in between."""
LISTEN_SECONDS = 0.2
"""Seconds between two reads of the mailbox."""
GRACE_SECONDS = 5.0
"""Seconds to wait for results of the others after one learner's error: if one process is gone, the others fail too."""
SILENT = timedelta(hours=2)
"""Time limit of ranks that wait for one another: one may be computing a reward or waiting for an engine."""


class Mailbox:
    """Messages of the first learner to the process that records them."""

    def __init__(self) -> None:
        self._messages: list[tuple[str, tuple[Any, ...]]] = []

    def put(self, kind: str, *content: Any) -> None:
        """Add a message; its kind is the name of a callback of `Watchers`, its content the arguments."""
        self._messages.append((kind, content))

    def take(self) -> list[tuple[str, tuple[Any, ...]]]:
        """Return and remove all messages, in order."""
        messages, self._messages = self._messages, []
        return messages


class _Lighter(Protocol):
    def with_less(self, less: NeedsLess) -> Self: ...


Data = TypeVar("Data", bound=_Lighter)


@dataclass(frozen=True)
class Joint(Generic[Data]):
    """A function that every learner of a group runs, with its arguments."""

    make: Callable[[Data, Ranks, OpenEngine, Watchers], Any]
    """The function, which every rank calls; it must be defined at the top of a module."""
    data: Data
    """Argument of each rank."""
    order: Order | None = None
    """Arguments with which the first rank's engines are opened, except for their precision, which is the learners';
    None if no engine is used."""
    images: tuple[Path, ...] = field(default_factory=opened_tables)
    """Tables of the images that the data refer to."""


@dataclass(frozen=True)
class LearnerRank:
    """A learner's number in its group, and the address at which the group meets."""

    number: int
    count: int
    address: tuple[str, int]
    """Host and port where the first learner listens for the others."""
    threads: int | None
    """Number of threads; None: torch's default."""


class HostedLearner:
    """A learner in a separate process of Ray."""

    def __init__(self) -> None:
        self._listening: socket.socket | None = None

    def listen(self) -> tuple[str, int]:
        """Listen for the other ranks as the first of the group, on this address alone. Return host and port."""
        self._listening = listening_at(cluster.own_address())
        host, port = self._listening.getsockname()[:2]
        return host, port

    def learn(
        self, joint: Joint[Any], seat: LearnerRank, place: tuple[Cluster, PlacementSettings], mailbox: Any
    ) -> Any:
        """Join the group, run the joint function and return its result."""
        if seat.threads is not None:
            torch.set_num_threads(seat.threads)
        where, placement = place

        @contextmanager
        def engine(autocast: torch.dtype | None) -> Iterator[Engine]:
            assert joint.order is not None, "it asks engines"
            fleet = cluster.placed_fleet(where, placement, replace(joint.order, dtype=autocast or torch.float32))
            try:
                yield fleet
            finally:
                fleet.close()

        for table in joint.images:
            open_table(table)
        _stay_on(seat.address[0])
        torch.distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
            store=meet(seat.number, seat.count, seat.address, SILENT, self._listening),
            timeout=SILENT,
            world_size=seat.count,
            rank=seat.number,
        )
        try:
            return joint.make(joint.data, joined_ranks(), engine, _mailbox_watchers(mailbox))
        finally:
            torch.distributed.destroy_process_group()


def _stay_on(host: str) -> None:
    """Keep the traffic of gloo and NCCL on loopback if the ranks meet there.

    By default they listen on an address of the machine's name, or on its network. The user's choice of interfaces takes
    precedence.
    """
    if not ip_address(host).is_loopback:
        return
    for interface, addresses in psutil.net_if_addrs().items():
        if any(entry.address == host for entry in addresses):
            for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
                os.environ.setdefault(name, interface)


def learn_together(where: Cluster, placement: PlacementSettings, joint: Joint[Any], watchers: Watchers) -> Any:
    """Run a function on `placement.learners` processes, which are restarted together if one is gone.

    They end with this call.

    Args:
        where: the cluster on which they are placed.
        placement: their number, and the engines of the first.
        joint: the function and its arguments.
        watchers: called in this process; any exception of `proceed` ends the learners.

    Returns:
        Return value of the first learner.

    Raises:
        UserError: an error of a learner, or their processes ended again and again.
    """
    losses, last_start = 0, -1
    while True:
        relay = _MessageRelay(watchers)
        try:
            return _run_group(where, placement, joint, relay)
        except NeedsLess as less:
            joint = replace(joint, data=joint.data.with_less(less))
            warnings.warn(f"{less}; the learners are started again", stacklevel=2)
        except Gone as error:
            losses = losses + 1 if relay.began == last_start else 1
            last_start = relay.began
            if losses > RESTARTS:
                raise UserError(f"learners: a process was gone {losses} times ({first_line(error)})") from None
            warnings.warn(f"learners: {first_line(error)}; they are started again", stacklevel=2)


@dataclass
class _MessageRelay:
    """The watchers that receive a group's messages, and the round that the group resumed from."""

    watchers: Watchers
    began: int = -1

    def pass_on(self, messages: Sequence[tuple[str, tuple[Any, ...]]]) -> None:
        """Pass messages to the watchers."""
        for kind, content in messages:
            if kind == "resumed":
                (self.began,) = content
            getattr(self.watchers, kind)(*content)


def _run_group(where: Cluster, placement: PlacementSettings, joint: Joint[Any], relay: _MessageRelay) -> Any:
    """Start the learners, read their messages until all are done or one fails, and end them."""
    count = placement.learners
    resources = where.of_each_learner(placement)
    threads = None
    if where.address is None and not resources["num_gpus"]:
        threads = max(1, torch.get_num_threads() // count)
    mailbox = cluster.start(Mailbox, {"num_cpus": 0, "num_gpus": 0})
    learners = [cluster.start(HostedLearner, resources) for _ in range(count)]
    try:
        address = cluster.answer(learners[0].listen.remote())
        references = [
            learner.learn.remote(joint, LearnerRank(number, count, address, threads), (where, placement), mailbox)
            for number, learner in enumerate(learners)
        ]
        waiting = references
        while waiting:
            finished, waiting = cluster.finished(waiting, LISTEN_SECONDS)
            relay.pass_on(cluster.answer(mailbox.take.remote()))
            relay.watchers.proceed()
            for reference in finished:
                _raise_first(reference, waiting)
        relay.pass_on(cluster.answer(mailbox.take.remote()))
        return cluster.answer(references[0])
    finally:
        for actor in (*learners, mailbox):
            cluster.end(actor)


def _raise_first(reference: Any, others: Sequence[Any]) -> None:
    """Raise the error of a finished learner, if any; if another learner's process is gone, raise that error instead."""
    try:
        cluster.answer(reference)
    except (Gone, KeyboardInterrupt):
        raise
    except Exception as error:
        deadline = time.monotonic() + GRACE_SECONDS
        running = list(others)
        while running and (remaining := deadline - time.monotonic()) > 0:
            ended, running = cluster.finished(running, remaining)
            for other in ended:
                try:
                    cluster.answer(other)
                except Gone:
                    raise
                except Exception:
                    continue
        raise error


def _mailbox_watchers(mailbox: Any) -> Watchers:
    """Return the watchers of a learner, which put messages into the mailbox."""
    return Watchers(
        metrics=lambda number, values: mailbox.put.remote("metrics", number, values),
        samples=lambda number, rows: mailbox.put.remote("samples", number, rows),
        resumed=lambda rounds: mailbox.put.remote("resumed", rounds),
        opened=lambda precision, shape: mailbox.put.remote("opened", precision, shape),
    )
