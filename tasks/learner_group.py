"""Learners in processes of their own: started together, listened to, and started again where one of them is gone.

Each is a rank of `models.training.train`. What the first tells of its rounds comes through a mailbox to this process,
which alone writes it down. A group whose processes end goes on from the last checkpoint in fresh ones, and ends with
the weights that it would have had; one that runs out of memory goes on so with shorter rows.
"""

from __future__ import annotations

import os
import socket
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import torch

from models.engine.engine import Engine
from models.engine.hosted import Order
from models.errors import UserError
from models.learner.out_of_memory import NeedsLess
from models.loop.alarm import Collapse
from models.loop.loop import Watchers
from models.placement import PlacementSettings
from models.policy.build import first_line
from models.ranks import joined_ranks
from models.training import Training, train
from tasks import cluster
from tasks.cluster import Cluster, Gone

RESTARTS = 3
"""Fresh groups that a training may take for processes that were gone, before it has made another checkpoint."""
LISTEN_SECONDS = 0.2
"""Between two looks into the mailbox."""
GRACE_SECONDS = 5.0
"""How long after the error of one learner it is waited for news of the others: where one is gone, the others break."""
SILENT = timedelta(hours=2)
"""How long ranks wait for one another: a reward or an engine may be what one of them is at."""


class Mailbox:
    """What the first learner tells, until it is taken."""

    def __init__(self) -> None:
        self._letters: list[tuple[str, tuple[Any, ...]]] = []

    def put(self, kind: str, *content: Any) -> None:
        """Leave a letter of a kind: the name of one of the `Watchers`."""
        self._letters.append((kind, content))

    def take(self) -> list[tuple[str, tuple[Any, ...]]]:
        """All letters that were left, in their order."""
        letters, self._letters = self._letters, []
        return letters


@dataclass(frozen=True)
class Seat:
    """A learner's place in its group."""

    number: int
    count: int
    address: str
    """Where the first learner listens for the others, `host:port`."""
    threads: int | None
    """That it computes with; None: as many as torch takes by itself."""


class HostedLearner:
    """A rank in a process of its own."""

    def process(self) -> int:
        """Its process id, on its machine."""
        return os.getpid()

    def free_address(self) -> str:
        """Where it could listen for the others."""
        host = cluster.own_address()
        with socket.socket() as free:
            free.bind((host, 0))
            return f"{host}:{free.getsockname()[1]}"

    def learn(
        self, training: Training, seat: Seat, placed: tuple[Cluster, PlacementSettings], order: Order, mailbox: Any
    ) -> Collapse | None:
        """Train with the others; see `models.training.train`."""
        if seat.threads is not None:
            torch.set_num_threads(seat.threads)
        where, placement = placed

        @contextmanager
        def engine(autocast: torch.dtype | None) -> Iterator[Engine]:
            fleet = cluster.placed_fleet(where, placement, replace(order, dtype=autocast or torch.float32))
            try:
                yield fleet
            finally:
                fleet.close()

        torch.distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
            f"tcp://{seat.address}",
            timeout=SILENT,
            world_size=seat.count,
            rank=seat.number,
        )
        try:
            return train(training, joined_ranks(), engine, _to(mailbox))
        finally:
            torch.distributed.destroy_process_group()


def learn_together(
    where: Cluster, placement: PlacementSettings, training: Training, order: Order, watchers: Watchers
) -> Collapse | None:
    """Train with `placement.learners` processes, and start them again where one is gone; they end with this call.

    Args:
        where: they are placed.
        placement: how many, and the engines of the first.
        training: what they make.
        order: what engines are opened with, but for their precision, which is the learners'.
        watchers: told in this process; whatever `proceed` raises ends the training.

    Returns:
        The policy's collapse, where there was one.

    Raises:
        UserError: what a learner says, or that their processes ended again and again.
    """
    lost, done = 0, -1
    while True:
        heard = _Heard(watchers)
        try:
            return _one_group(where, placement, training, order, heard)
        except NeedsLess as less:
            schedule = replace(
                training.schedule, token_budget=less.budget, gradient_checkpointing=less.recompute or "auto"
            )
            training = replace(training, schedule=schedule)
            warnings.warn(f"{less}; the learners go on from the last checkpoint", stacklevel=2)
        except Gone as error:
            lost = lost + 1 if heard.began == done else 1
            done = heard.began
            if lost > RESTARTS:
                raise UserError(f"learners: a process was gone {lost} times ({first_line(error)})") from None
            warnings.warn(f"learners: {first_line(error)}; they go on from the last checkpoint", stacklevel=2)


@dataclass
class _Heard:
    """The watchers, and the round that a group began with."""

    watchers: Watchers
    began: int = -1

    def letters(self, letters: Sequence[tuple[str, tuple[Any, ...]]]) -> None:
        """Tell the watchers."""
        for kind, content in letters:
            if kind == "resumed":
                (self.began,) = content
            getattr(self.watchers, kind)(*content)


def _one_group(
    where: Cluster, placement: PlacementSettings, training: Training, order: Order, heard: _Heard
) -> Collapse | None:
    """Start the learners, listen until all are done or one is not, and end them."""
    count = placement.learners
    resources = where.of_each_learner(placement)
    threads = None
    if where.address is None and not resources["num_gpus"]:
        threads = max(1, torch.get_num_threads() // count)
    mailbox = cluster.start(Mailbox, {"num_cpus": 0, "num_gpus": 0})
    learners = [cluster.start(HostedLearner, resources) for _ in range(count)]
    try:
        address = cluster.answer(learners[0].free_address.remote())
        asked = [
            learner.learn.remote(training, Seat(number, count, address, threads), (where, placement), order, mailbox)
            for number, learner in enumerate(learners)
        ]
        waiting = asked
        while waiting:
            finished, waiting = cluster.finished(waiting, LISTEN_SECONDS)
            heard.letters(cluster.answer(mailbox.take.remote()))
            heard.watchers.proceed()
            for reference in finished:
                _raise_first(reference, waiting)
        heard.letters(cluster.answer(mailbox.take.remote()))
        collapse: Collapse | None = cluster.answer(asked[0])
        return collapse
    finally:
        for actor in (*learners, mailbox):
            cluster.end(actor)


def _raise_first(reference: Any, others: Sequence[Any]) -> None:
    """Raise the error of a learner that has one: that another is gone, where that is why."""
    try:
        cluster.answer(reference)
    except (Gone, KeyboardInterrupt):
        raise
    except Exception as error:
        until = time.monotonic() + GRACE_SECONDS
        left = list(others)
        while left and (remaining := until - time.monotonic()) > 0:
            ended, left = cluster.finished(left, remaining)
            for other in ended:
                try:
                    cluster.answer(other)
                except Gone:
                    raise
                except Exception:
                    continue
        raise error


def _to(mailbox: Any) -> Watchers:
    """Watchers that write letters."""
    return Watchers(
        metrics=lambda number, values: mailbox.put.remote("metrics", number, values),
        samples=lambda number, rows: mailbox.put.remote("samples", number, rows),
        resumed=lambda rounds: mailbox.put.remote("resumed", rounds),
    )
