"""One engine for all steps of a flow: it generates for the training, and then for the evaluation of each policy.

Starting vLLM takes longer than a small evaluation. Within `shared_engine()` an engine stays open for the next step that
needs the same one. The place (the exclusive use of the GPUs, gpu_place.py) is held as long, because the memory is in
use. Outside of `shared_engine()`, each step has its own engine.
Any error closes it. A process has at most one of these engines open; if the recipe places several in separate processes
(`placement`), it is their fleet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from models.base.device import on_device
from models.base.placement import PlacementSettings
from models.engines.engine import Engine, EngineSettings, engine_dtype
from models.engines.open_engine import open_engine
from models.policies.build import load_causal_model
from models.policies.folder import hash_folder
from models.policies.use import GATE, MASK, read_use
from models.text.end_ids import Ends, all_of
from tasks.compute.gpu_place import gpu_slot

if TYPE_CHECKING:
    from tasks.compute.cluster import Cluster


class _Shared:
    """The engine, the cluster and the place on the GPU that stay open between two steps."""

    def __init__(self, placement: PlacementSettings | None = None, address: str | None = None) -> None:
        self.placement = placement or PlacementSettings()
        self.address = address
        self.cluster: Cluster | None = None
        self.place = ExitStack()
        self.placed = False
        self.engine: Engine | None = None
        self.key = ""

    def take_place(self) -> None:
        if not self.placed:
            self.place.enter_context(gpu_slot())
            self.placed = True

    def close_engine(self) -> None:
        engine, self.engine, self.key = self.engine, None, ""
        if engine is not None:
            engine.close()

    def fleet(
        self,
        folder: Path,
        settings: EngineSettings,
        *,
        longest: int,
        end: Ends,
        dtype: torch.dtype,
        trust_remote_code: bool,
    ) -> Engine:
        """Open engines in separate processes; the first call starts or joins the cluster that places them."""
        from models.engines.hosted import Order
        from tasks.compute.cluster import placed_fleet

        order = Order(folder, settings, longest, end, dtype, trust_remote_code)
        return placed_fleet(self.joined(), self.placement, order)

    def joined(self) -> Cluster:
        """Return the cluster that places processes; start or join it on the first call."""
        from tasks.compute.cluster import connected

        if self.cluster is None:
            self.cluster = self.place.enter_context(connected(self.address))
        return self.cluster


_shared: _Shared | None = None


@contextmanager
def shared_engine(placement: PlacementSettings | None = None, cluster: str | None = None) -> Iterator[None]:
    """Share one engine between the steps inside; it is closed, and the place on the GPU released, at the end.

    Args:
        placement: placement of the recipe; None: all in this process.
        cluster: address of the Ray cluster on which it is placed; None: this machine.

    Raises:
        UserError: the placement is not possible (`PlacementSettings.check`).
    """
    global _shared
    if _shared is not None:
        raise RuntimeError("an engine is shared already")
    if placement is not None:
        placement.check(cluster)
    _shared = _Shared(placement, cluster)
    try:
        yield
    finally:
        ending, _shared = _shared, None
        with ending.place:  # released last, when the memory is free
            ending.close_engine()


def gpus() -> float:
    """Return the number of GPUs that the flow reserves while it holds the place, here or on its cluster; maybe 0."""
    placement = _shared.placement if _shared is not None else PlacementSettings()
    if placement.placed and (torch.cuda.is_available() or (_shared is not None and _shared.address is not None)):
        own = placement.learners if placement.learners > 1 else float(torch.cuda.is_available())
        return own + placement.next_to_learners.engines * placement.engine_gpus
    return float(torch.cuda.is_available())


def learners() -> int:
    """Return the number of processes that learn together in the flow's placement."""
    return _shared.placement.learners if _shared is not None else 1


def place_for_learners() -> tuple[Cluster, PlacementSettings]:
    """Close the flow's engine, and return the cluster and the placement for the flow's learners and their engines.

    The first learner opens the engines that it uses.
    """
    assert _shared is not None, "a flow places"
    _shared.close_engine()
    return _shared.joined(), _shared.placement.next_to_learners


@contextmanager
def engine_place() -> Iterator[None]:
    """Hold the place on the GPU for a step that uses a `borrowed_engine`."""
    if _shared is None:
        with gpu_slot():
            yield
    else:
        _shared.take_place()
        yield


@contextmanager
def learner_place() -> Iterator[None]:
    """Hold the place on the GPU for a step that trains and does not use an engine.

    A flow that has held the place since an earlier step reuses it, with its engine closed: a second request for the
    place would wait as long as the flow lives.
    """
    if _shared is None or not _shared.placed:
        with gpu_slot():
            yield
    else:
        _shared.close_engine()
        yield


@contextmanager
def borrowed_engine(
    folder: Path,
    settings: EngineSettings,
    *,
    longest: int,
    end: Ends,
    dtype: torch.dtype | None = None,
    trust_remote_code: bool = False,
) -> Iterator[Engine]:
    """Yield an engine with the weights of `folder`: the flow's shared engine if it fits, otherwise a new one.

    Arguments and errors are those of `open_engine`, except for its seed.

    The shared engine is used if it was opened with equal arguments on a model of the same configuration. Its results
    are bitwise equal to those of a new one, whatever it generated before. If fine-tuning and evaluation need different
    precisions, or the policies have different configurations, each has its own, one after the other.
    """
    shared = _shared or _Shared()
    chosen = engine_dtype(settings, dtype)
    key = _key(folder, settings, longest, end, chosen)
    try:
        if shared.engine is not None and shared.key == key:
            # float32 holds every dtype of a checkpoint; the engine rounds as it does when it reads the files itself.
            model = on_device(load_causal_model(folder, torch.float32, trust_remote_code=trust_remote_code))
            shared.engine.load(model.state_dict().items())
        else:
            shared.close_engine()
            if shared.placement.engines:
                shared.engine = shared.fleet(
                    folder, settings, longest=longest, end=end, dtype=chosen, trust_remote_code=trust_remote_code
                )
            else:
                shared.engine = open_engine(
                    folder,
                    settings,
                    longest=longest,
                    end=end,
                    seed=0,  # it draws from the seed of each call alone
                    dtype=dtype,
                    trust_remote_code=trust_remote_code,
                )
            shared.key = key
        yield shared.engine
    except BaseException:
        shared.close_engine()
        raise
    if shared is not _shared:
        shared.close_engine()


def _key(folder: Path, settings: EngineSettings, longest: int, end: Ends, dtype: torch.dtype) -> str:
    """Return the key by which an engine is shared: all that it reads when it starts except the weights, as JSON."""
    read = [(folder / name) for name in ("config.json", "generation_config.json")]
    texts = [file.read_text() if file.is_file() else None for file in read]
    # The files used with a policy are also read when the engine starts.
    extra_digests = [hash_folder(folder / name) for name in (GATE, MASK) if (folder / name).is_dir()]
    return json.dumps([texts, repr(settings), longest, all_of(end), str(dtype), repr(read_use(folder)), extra_digests])
