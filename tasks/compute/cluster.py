"""Engines and learners in separate processes of Ray, on this machine or on a cluster; the only module that imports Ray.

Ray places the processes, reports when one is gone, and carries arrays; the fleet distributes the work
(models.engines.fleet). Weights are put into Ray's object store once a sync. The engines of a machine read them there
without a copy.

On this machine Ray is started for the run: on loopback, without dashboard and usage statistics, with its own files. It
ends with the run, and with this process in any case. A cluster that is joined is left unchanged: the actors started
there end with the connection.
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

from models.base.errors import UserError
from models.base.images import content_of, spans_of
from models.base.placement import PlacementSettings
from models.engines.arrays import RequestArrays, Rows, weight_parts
from models.engines.engine import CompletionRequest, Engine, Generated, TokenSampling, prompts_of
from models.engines.fleet import Fleet
from models.engines.hosted import About, HostedEngine, Order
from models.engines.kept import WeightStore
from models.engines.open_engine import opening
from models.policies.build import first_line

PLACE_SECONDS = 1800.0
"""Seconds that an engine may take to be placed and to start: a cluster may have to get a machine for it first."""
ANSWER_SECONDS = 10.0
"""Seconds within which a connection to the address of a cluster must be possible."""
END_SECONDS = 10.0
"""Seconds that Ray's processes may take to end by themselves."""
Gone = RayActorError
"""Error of a call to an actor whose process has ended."""
_OWN_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
"""Environment of a Ray that this process starts; without the token Ray would write one into the home folder."""
logging.getLogger("ray").setLevel(logging.ERROR)


@dataclass(frozen=True)
class Cluster:
    """The Ray cluster that this process is connected to, or its own Ray on this machine."""

    address: str | None
    """Address of the cluster; None: a Ray that this process started on this machine."""
    gpus: float
    """Number of its GPUs when this process connected."""

    def gpus_of_each(self, placement: PlacementSettings) -> float:
        """Return the number of GPUs that Ray reserves for each engine; 0 on a machine without GPUs.

        Raises:
            UserError: this machine has too few.
        """
        if self.address is not None:
            return placement.engine_gpus  # a cluster may add GPUs on request
        if not self.gpus:
            return 0.0
        if placement.engines * placement.engine_gpus > self.gpus:
            raise UserError(
                f"placement: {placement.engines} engines of {placement.engine_gpus:g} GPU each, but this machine has "
                f"{self.gpus:g}; lower placement.engines or placement.engine_gpus, or join a cluster (--cluster)"
            )
        return placement.engine_gpus

    def of_each_learner(self, placement: PlacementSettings) -> dict[str, float]:
        """Return the resources that Ray reserves for a learner: a GPU, if there are any.

        On a cluster without GPUs it is a core, so that the learners are placed separately. A cluster that scales has no
        GPU until one is requested: it counts as one without GPUs if its engines have none either
        (`placement.engine_gpus: 0`).
        """
        if self.gpus or (self.address is not None and placement.engine_gpus):
            return {"num_gpus": 1.0, "num_cpus": 0.0}
        return {"num_gpus": 0.0, "num_cpus": 0.0 if self.address is None else 1.0}


@contextmanager
def connected(address: str | None) -> Iterator[Cluster]:
    """Connect to this machine's own Ray, or to the cluster at `address`; actors started inside end with the block.

    Raises:
        UserError: the address has no cluster, or Ray does not start.
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
    """Check that a server listens at an address: Ray itself would wait for it for many minutes.

    Raises:
        UserError: it is not an address, or no server listens there.
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
    """Start Ray on this machine for this process alone, and stop it at the end of the block."""
    folder = _short_folder()
    before = set(os.environ)
    gpus = torch.cuda.device_count()
    original_resolver = services.resolve_ip_for_localhost
    try:
        # Ray would replace loopback by the address at which other machines see this one, and would listen there.
        services.resolve_ip_for_localhost = lambda host: host
        _connect(
            _OWN_ENVIRONMENT,
            address="local",
            include_dashboard=False,
            num_gpus=gpus,
            _node_ip_address="127.0.0.1",
            _temp_dir=str(folder),
        )
        yield Cluster(None, float(gpus))
    finally:
        services.resolve_ip_for_localhost = original_resolver
        processes = _children(folder)
        ray.shutdown()
        for key in [key for key in os.environ if key.startswith("RAY_") and key not in before]:
            del os.environ[key]  # what Ray has set since
        _, remaining = psutil.wait_procs(processes, END_SECONDS)
        for process in remaining:
            process.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _connect(environment: Mapping[str, str], **options: Any) -> None:
    """Call `ray.init` without output, and restore SIGTERM's handler and the environment, which Ray has read by then."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    handler, before = signal.getsignal(signal.SIGTERM), dict(os.environ)
    os.environ.update(environment)
    try:
        ray.init(log_to_driver=False, configure_logging=False, **options)
    finally:
        for key in os.environ.keys() - before.keys():
            del os.environ[key]
        os.environ.update(before)
        if in_main_thread and handler is not None:
            signal.signal(signal.SIGTERM, handler)


def _short_folder() -> Path:
    """Create a folder with a short path for Ray: a socket's path has at most 107 bytes, Ray's part of it 60."""
    parent = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix="ray-", dir=parent if len(parent) < 32 else "/tmp"))


def _children(folder: Path) -> list[psutil.Process]:
    """Return the child processes that belong to Ray: those with `folder` on their command line, and their children."""
    descendants = []
    for process in psutil.Process().children():
        try:
            if any(str(folder) in part for part in process.cmdline()):
                descendants += [process, *process.children(recursive=True)]
        except psutil.Error:
            continue
    return descendants


class StoredWeights(Iterable[tuple[str, Tensor]]):
    """Weights in Ray's object store, part by part."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = parts
        """References to the parts in the object store."""

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        for part in self.parts:
            for array in ray.get(part):
                yield array.name, array.tensor()


class KeptInStore(WeightStore):
    """A `models.engines.kept.WeightStore` that keeps the weights of the last sync in Ray's object store."""

    stored = StoredWeights(())

    def keep(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """See `WeightStore.keep`. The previous weights are dropped first, so that the store never holds both."""
        self.stored = StoredWeights(())
        self.stored = StoredWeights([ray.put(part) for part in weight_parts(weights, self.dtype)])
        self.version = version

    @property
    def filled(self) -> bool:
        """See `WeightStore.filled`."""
        return bool(self.stored.parts)

    def given(self) -> StoredWeights:
        """See `WeightStore.given`."""
        return self.stored

    def forget(self) -> None:
        """See `WeightStore.forget`."""
        self.stored = StoredWeights(())


class PlacedEngine(Engine):
    """An engine in a separate process that Ray has placed; see `models.engines.engine.Engine`.

    Args:
        order: arguments with which it is opened.
        resources: resources that Ray reserves for it, as options of an actor.

    Raises:
        UserError: it cannot be opened, or no machine has room for it; in every call the engine's error.
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
                f"placement: no engine could be placed and started within {PLACE_SECONDS / 60:.0f} minutes; each needs "
                f"{resources.get('num_gpus', 0):g} GPU"
            ) from None
        except BaseException:
            self.close()
            raise
        self.process = about.process
        """Its process id, on its machine."""
        self.vocabulary, self.longest, self.room = about.vocabulary, about.longest, about.room
        self._images: set[str] = set()
        """Images that were sent to its process."""

    def complete(self, requests: Sequence[CompletionRequest], drawing: TokenSampling) -> list[Generated]:
        """See `Engine.complete`."""
        self._send_images(prompts_of(requests))
        arrays, self.version = answer(self._actor.complete.remote(RequestArrays.of(requests), drawing))
        completions: list[Generated] = arrays.completions()
        return completions

    def serve(
        self,
        requests: Mapping[int, CompletionRequest],
        drawing: TokenSampling,
        steps: int,
        dropped: Collection[int] = (),
    ) -> dict[int, Generated]:
        """See `Engine.serve`."""
        self._send_images(prompts_of(list(requests.values())))
        arrays = RequestArrays.of(list(requests.values()))
        numbers, generated, self.version = answer(
            self._actor.serve.remote(list(requests), arrays, drawing, steps, list(dropped))
        )
        return dict(zip(numbers, generated.completions(), strict=True))

    def score(self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `Engine.score`."""
        self._send_images(prompts)
        scores, self.version = answer(self._actor.score.remote(Rows.of(prompts), Rows.of(completions)))
        values: list[list[float]] = scores.lists()
        return values

    def load(self, weights: Iterable[tuple[str, Tensor]], version: int = 0) -> None:
        """See `Engine.load`. Weights that are already in the object store are not put there again."""
        if not isinstance(weights, StoredWeights):
            weights = StoredWeights([ray.put(part) for part in weight_parts(weights, self.dtype)])
        for part in weights.parts:
            self._actor.receive.remote(part)  # calls of one caller are answered in their order
        self.version = answer(self._actor.load.remote(version))

    def close(self) -> None:
        """See `Engine.close`. Its process is killed, even during a call."""
        ray.kill(self._actor, no_restart=True)

    def _send_images(self, prompts: Sequence[Sequence[int]]) -> None:
        """Send the images of prompts that its process does not have yet."""
        names = {span.name for prompt in prompts if min(prompt, default=0) < 0 for span in spans_of(prompt)}
        if new := names - self._images:
            self._actor.add_images.remote({name: content_of(name) for name in sorted(new)})  # answered in order
            self._images |= new


def placed_fleet(cluster: Cluster, placement: PlacementSettings, order: Order) -> Fleet:
    """Open the engines of a placement on the weights in the order's folder, which must exist on each machine.

    Raises:
        UserError: see `models.engines.open_engine.opening`, `Cluster.gpus_of_each` and `PlacedEngine`.
    """
    gpus = cluster.gpus_of_each(placement)
    resources: dict[str, float] = {"num_gpus": gpus, "num_cpus": 0}
    if not gpus:
        # The number of threads affects the last bits of the results: with this one they equal those of one process.
        order = replace(order, threads=torch.get_num_threads())
        resources["num_cpus"] = 0 if cluster.address is None else 1  # otherwise all would be placed on one machine
    order = replace(order, folder=order.folder.absolute(), ways=placement.ways)
    # Settings with which no engine could be opened raise here, before Ray has started one.
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
    """Start an actor: an object of `kind` in a separate process, whose methods are called by `.remote()`.

    If its process ends, it is not restarted.
    """
    return ray.remote(kind).options(max_restarts=0, **resources).remote()


def end(actor: Any) -> None:
    """Kill the process of an actor, even during a call."""
    ray.kill(actor, no_restart=True)


def finished(references: Sequence[Any], seconds: float) -> tuple[list[Any], list[Any]]:
    """Wait up to `seconds` until one of some calls has finished; return the finished calls and the others."""
    ready, others = ray.wait(list(references), num_returns=1, timeout=seconds)
    return ready, others


def own_address() -> str:
    """Return the address at which other machines of the cluster reach this one."""
    address: str = ray.util.get_node_ip_address()
    return address


def answer(reference: Any, seconds: float | None = None) -> Any:
    """Wait for an actor's call and return its result, or raise its error as the actor raised it."""
    try:
        return ray.get(reference, timeout=seconds)
    except RayTaskError as error:
        cause = error.cause
        if isinstance(cause, Exception) and not isinstance(cause, RayTaskError):
            raise cause from None
        raise
