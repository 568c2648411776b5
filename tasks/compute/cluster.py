"""Ray: engines in processes of their own, on this machine or on a cluster that is there. Nothing else imports it.

Ray places them, says when one is gone, and carries arrays; who does what is the fleet's matter (models.engine.fleet).
Weights are put into Ray's object store once a hand-over; the engines of a machine read them there, uncopied.

On this machine Ray is started for the run: on loopback, without dashboard and statistics of usage, with files of its
own; it ends with the run, and with this process whatever ends it. A cluster that is joined is left as it was: its
actors end with the connection.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import ray
import torch
from ray._private import services
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError
from torch import Tensor

from models.engine.arrays import AskArrays, Rows, weight_parts
from models.engine.engine import Ask, Drawing, Engine, Generated
from models.engine.fleet import Fleet
from models.engine.hosted import About, HostedEngine, Order
from models.engine.kept import Kept
from models.engine.open_engine import opening
from models.errors import UserError
from models.placement import PlacementSettings
from models.policy.build import first_line

PLACE_SECONDS = 1800.0
"""How long an engine may take to be placed and to start: a cluster may have to get a machine for it first."""
ANSWER_SECONDS = 10.0
"""How long the address of a cluster may take to answer."""
END_SECONDS = 10.0
"""How long Ray's processes may take to end by themselves."""
Gone = RayActorError
"""The process of what was started has ended."""
_OF_OUR_OWN = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
"""Environment of a Ray of this process's own. By the token its processes know one another; Ray would write one into the
home folder."""
logging.getLogger("ray").setLevel(logging.ERROR)


@dataclass(frozen=True)
class Cluster:
    """A Ray that this process is connected to."""

    address: str | None
    """None: it is this machine's alone."""
    gpus: float
    """That it has, now."""

    def gpus_of_each(self, placement: PlacementSettings) -> float:
        """GPUs that an engine is given; none on a machine that has none.

        Raises:
            UserError: this machine has too few.
        """
        if self.address is not None:
            return placement.engine_gpus  # those of a cluster may come when they are asked for
        if not self.gpus:
            return 0.0
        if placement.engines * placement.engine_gpus > self.gpus:
            raise UserError(
                f"placement: {placement.engines} engines of {placement.engine_gpus:g} GPU each, but this machine has "
                f"{self.gpus:g}; lower placement.engines or placement.engine_gpus, or join a cluster (--cluster)"
            )
        return placement.engine_gpus

    def of_each_learner(self, placement: PlacementSettings) -> dict[str, float]:
        """What Ray sets aside for a learner: a GPU, where there are any; on a cluster without, a core, so that they
        stand apart. A cluster that scales has no GPU until one is asked for: it is one without where its engines have
        none either (`placement.engine_gpus: 0`)."""
        if self.gpus or (self.address is not None and placement.engine_gpus):
            return {"num_gpus": 1.0, "num_cpus": 0.0}
        return {"num_gpus": 0.0, "num_cpus": 0.0 if self.address is None else 1.0}


@contextmanager
def connected(address: str | None) -> Iterator[Cluster]:
    """A Ray of this machine's own, or the cluster at `address`; all that was started there ends with it.

    Raises:
        UserError: there is no cluster at the address, or Ray does not start.
    """
    if address is None:
        with _started() as cluster:
            yield cluster
        return
    _require_answer(address)
    try:
        _connect({}, address=address)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        raise UserError(f"--cluster {address}: no Ray cluster answers there ({first_line(error)})") from None
    try:
        yield Cluster(address, ray.cluster_resources().get("GPU", 0.0))
    finally:
        ray.shutdown()


def _require_answer(address: str) -> None:
    """Make sure that somebody listens at an address: Ray itself would wait for it for many minutes.

    Raises:
        UserError: nobody does, or it is no address.
    """
    host, _, port = address.rpartition(":")
    if address == "auto":  # Ray finds it
        return
    if not host or not port.isdecimal():
        raise UserError(f"--cluster {address}: an address is HOST:PORT, as `ray start --head` prints it, or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"--cluster {address}: nothing answers there ({first_line(error)})") from None


@contextmanager
def _started() -> Iterator[Cluster]:
    """A Ray of this process's own."""
    folder = _short_folder()
    before = set(os.environ)
    gpus = torch.cuda.device_count()
    elsewhere = services.resolve_ip_for_localhost
    try:
        # Ray takes loopback for the address at which other machines see this one, and would listen there.
        services.resolve_ip_for_localhost = lambda host: host
        _connect(
            _OF_OUR_OWN,
            address="local",
            include_dashboard=False,
            num_gpus=gpus,
            _node_ip_address="127.0.0.1",
            _temp_dir=str(folder),
        )
        yield Cluster(None, float(gpus))
    finally:
        services.resolve_ip_for_localhost = elsewhere
        processes = _children(folder)
        ray.shutdown()
        for key in [key for key in os.environ if key.startswith("RAY_") and key not in before]:
            del os.environ[key]  # what Ray has set since
        _, left = psutil.wait_procs(processes, END_SECONDS)
        for process in left:
            process.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _connect(environment: Mapping[str, str], **options: Any) -> None:
    """`ray.init` that is quiet, and leaves SIGTERM and the environment as they were: what it starts has read it."""
    here = threading.current_thread() is threading.main_thread()
    handler, before = signal.getsignal(signal.SIGTERM), dict(os.environ)
    os.environ.update(environment)
    try:
        ray.init(log_to_driver=False, configure_logging=False, **options)
    finally:
        for key in os.environ.keys() - before.keys():
            del os.environ[key]
        os.environ.update(before)
        if here and handler is not None:
            signal.signal(signal.SIGTERM, handler)


def _short_folder() -> Path:
    """A folder for Ray's files: short, as a socket's path has 107 bytes at most and Ray's own part of it 60."""
    wanted = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix="ray-", dir=wanted if len(wanted) < 32 else "/tmp"))


def _children(folder: Path) -> list[psutil.Process]:
    """Ray's processes below this one: those that know `folder`, and theirs."""
    below = []
    for process in psutil.Process().children():
        try:
            if any(str(folder) in part for part in process.cmdline()):
                below += [process, *process.children(recursive=True)]
        except psutil.Error:
            continue
    return below


class StoredWeights(Iterable[tuple[str, Tensor]]):
    """Weights in Ray's object store, part by part."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = parts
        """References."""

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        for part in self.parts:
            for array in ray.get(part):
                yield array.name, array.tensor()


class KeptInStore(Kept):
    """The weights of the last hand-over in Ray's object store; see `models.engine.kept.Kept`."""

    stored = StoredWeights(())

    def keep(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """See `Kept.keep`. Those of the hand-over before go first: the store need not hold both."""
        self.stored = StoredWeights(())
        self.stored = StoredWeights([ray.put(part) for part in weight_parts(weights, self.dtype)])
        self.version = version

    @property
    def filled(self) -> bool:
        """See `Kept.filled`."""
        return bool(self.stored.parts)

    def given(self) -> StoredWeights:
        """See `Kept.given`."""
        return self.stored

    def forget(self) -> None:
        """See `Kept.forget`."""
        self.stored = StoredWeights(())


class PlacedEngine(Engine):
    """An engine in a process of its own that Ray has placed; see `models.engine.engine.Engine`.

    Args:
        order: what it is opened with.
        resources: what Ray sets aside for it, as options of an actor.

    Raises:
        UserError: it cannot be opened, or nobody has room for it; in every call what the engine says.
        RayError: its process is gone; in every call.
    """

    def __init__(self, order: Order, resources: dict[str, float]) -> None:
        self.dtype = order.dtype
        self._actor: Any = ray.remote(HostedEngine).options(max_restarts=0, **resources).remote()
        try:
            about: About = answer(self._actor.open.remote(order), PLACE_SECONDS)
        except GetTimeoutError:
            self.close()
            raise UserError(
                f"placement: no engine could be placed and started within {PLACE_SECONDS / 60:.0f} minutes; each asks "
                f"for {resources.get('num_gpus', 0):g} GPU"
            ) from None
        except BaseException:
            self.close()
            raise
        self.process = about.process
        """Its process id, on its machine."""
        self.vocabulary, self.longest, self.room = about.vocabulary, about.longest, about.room

    def each(self, asks: Sequence[Ask], drawing: Drawing) -> list[Generated]:
        """See `Engine.each`."""
        made, self.version = answer(self._actor.each.remote(AskArrays.of(asks), drawing))
        completions: list[Generated] = made.completions()
        return completions

    def serve(
        self, asks: Mapping[int, Ask], drawing: Drawing, steps: int, dropped: Collection[int] = ()
    ) -> dict[int, Generated]:
        """See `Engine.serve`."""
        arrays = AskArrays.of(list(asks.values()))
        numbers, made, self.version = answer(
            self._actor.serve.remote(list(asks), arrays, drawing, steps, list(dropped))
        )
        return dict(zip(numbers, made.completions(), strict=True))

    def score(self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `Engine.score`."""
        scores, self.version = answer(self._actor.score.remote(Rows.of(prompts), Rows.of(completions)))
        said: list[list[float]] = scores.lists()
        return said

    def load(self, weights: Iterable[tuple[str, Tensor]], version: int = 0) -> None:
        """See `Engine.load`. What is in the object store already is not put there again."""
        if not isinstance(weights, StoredWeights):
            weights = StoredWeights([ray.put(part) for part in weight_parts(weights, self.dtype)])
        for part in weights.parts:
            self._actor.receive.remote(part)  # calls of one caller are answered in their order
        self.version = answer(self._actor.load.remote(version))

    def close(self) -> None:
        """See `Engine.close`. Its process is ended, whatever it is at."""
        ray.kill(self._actor, no_restart=True)


def placed_fleet(cluster: Cluster, placement: PlacementSettings, order: Order) -> Fleet:
    """The engines of a placement, all on the weights of the order's folder, which each of their machines must have.

    Raises:
        UserError: see `models.engine.open_engine.opening`, `Cluster.gpus_of_each` and `PlacedEngine`.
    """
    gpus = cluster.gpus_of_each(placement)
    resources: dict[str, float] = {"num_gpus": gpus, "num_cpus": 0}
    if not gpus:
        # The number of threads is in the last bits of what comes out: with this one they are those of one process.
        order = replace(order, threads=torch.get_num_threads())
        resources["num_cpus"] = 0 if cluster.address is None else 1  # else all would be placed on one machine
    order = replace(order, folder=order.folder.absolute(), ways=placement.ways)
    # What no engine could be opened with is said here, before Ray has started one.
    known = opening(
        order.folder,
        order.settings,
        longest=order.longest,
        end=order.end,
        seed=0,
        dtype=order.dtype,
        trust_remote_code=order.trust_remote_code,
        ways=order.ways,
    )
    starts = [partial(PlacedEngine, order, resources)] * placement.engines
    return Fleet(starts, known.dtype, known.most, KeptInStore(known.dtype))


def start(kind: type, resources: Mapping[str, float]) -> Any:
    """An object of `kind` in a process of its own; its methods are asked by `.remote()`. It is never restarted."""
    return ray.remote(kind).options(max_restarts=0, **resources).remote()


def end(actor: Any) -> None:
    """End the process of what was started, whatever it is at."""
    ray.kill(actor, no_restart=True)


def finished(references: Sequence[Any], seconds: float) -> tuple[list[Any], list[Any]]:
    """Those of some calls that are answered, waiting for the first so long, and the others."""
    ready, others = ray.wait(list(references), num_returns=1, timeout=seconds)
    return ready, others


def own_address() -> str:
    """Address at which others of the cluster reach this machine."""
    address: str = ray.util.get_node_ip_address()
    return address


def answer(reference: Any, seconds: float | None = None) -> Any:
    """What a call of an actor returned; its error as it was raised there."""
    try:
        return ray.get(reference, timeout=seconds)
    except RayTaskError as error:
        cause = error.cause
        if isinstance(cause, Exception) and not isinstance(cause, RayTaskError):
            raise cause from None
        raise
