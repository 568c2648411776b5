"""One engine for a flow: it starts once, takes the policy of every round, then one policy to measure after the other.

Starting vLLM takes longer than a small evaluation. Within `shared_engine()` an engine stays open for the next step
that asks for the same one, and the place on the GPU is held as long, for the memory is; outside, each step has its
own. Whatever goes wrong closes it. A process has at most one of these engines open; where the recipe places several in
processes of their own (`placement`), it is their fleet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from models.device import on_device
from models.engine.engine import Engine, EngineSettings, engine_dtype
from models.engine.open_engine import open_engine
from models.placement import PlacementSettings
from models.policy.build import load_causal_model
from models.policy.folder import hash_folder
from models.policy.use import GATE, MASK, read_use
from models.text.end_ids import Ends, all_of
from tasks.compute.gpu_place import gpu_slot

if TYPE_CHECKING:
    from tasks.compute.cluster import Cluster


class _Shared:
    """What is open between two steps."""

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
        """Engines in processes of their own; what places them is started, or joined, with the first."""
        from models.engine.hosted import Order
        from tasks.compute.cluster import placed_fleet

        order = Order(folder, settings, longest, end, dtype, trust_remote_code)
        return placed_fleet(self.joined(), self.placement, order)

    def joined(self) -> Cluster:
        """What places processes, started, or joined, where it was not."""
        from tasks.compute.cluster import connected

        if self.cluster is None:
            self.cluster = self.place.enter_context(connected(self.address))
        return self.cluster


_shared: _Shared | None = None


@contextmanager
def shared_engine(placement: PlacementSettings | None = None, cluster: str | None = None) -> Iterator[None]:
    """Steps inside share one engine; it is closed, and the place on the GPU given back, at the end.

    Args:
        placement: of the recipe; None: all in this process.
        cluster: address of the Ray cluster on which it is placed; None: this machine.

    Raises:
        UserError: what is placed cannot be (`PlacementSettings.check`).
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
        with ending.place:  # given back last, when the memory is free
            ending.close_engine()


def gpus() -> float:
    """GPUs that the flow takes while it has the place, here or on its cluster; 0 where there is none."""
    placement = _shared.placement if _shared is not None else PlacementSettings()
    if placement.placed and (torch.cuda.is_available() or (_shared is not None and _shared.address is not None)):
        own = placement.learners if placement.learners > 1 else float(torch.cuda.is_available())
        return own + placement.beside_learners.engines * placement.engine_gpus
    return float(torch.cuda.is_available())


def learners() -> int:
    """Processes that learn together, as the flow's placement has it."""
    return _shared.placement.learners if _shared is not None else 1


def place_for_learners() -> tuple[Cluster, PlacementSettings]:
    """Where the learners of the flow are placed, and how many with how many engines. The flow's engine is closed: the
    first learner opens those that it asks."""
    assert _shared is not None, "a flow places"
    _shared.close_engine()
    return _shared.joined(), _shared.placement.beside_learners


@contextmanager
def engine_place() -> Iterator[None]:
    """The place on the GPU for a step that asks for a `lent_engine`."""
    if _shared is None:
        with gpu_slot():
            yield
    else:
        _shared.take_place()
        yield


@contextmanager
def learner_place() -> Iterator[None]:
    """The place on the GPU for a step that learns and asks for no engine.

    A flow that has the place since an earlier step lends it, with its engine closed: asked for once more, the place
    would be waited for as long as the flow lives.
    """
    if _shared is None or not _shared.placed:
        with gpu_slot():
            yield
    else:
        _shared.close_engine()
        yield


@contextmanager
def lent_engine(
    folder: Path,
    settings: EngineSettings,
    *,
    longest: int,
    end: Ends,
    dtype: torch.dtype | None = None,
    trust_remote_code: bool = False,
) -> Iterator[Engine]:
    """An engine on the weights of `folder`; arguments and errors are those of `open_engine`, which has a seed beside.

    The shared one is given where it was opened with equal arguments on a model of the same configuration. It says
    the same as a new one, to the last bit, whatever it generated before. Where fine-tuning and evaluation ask for
    different precisions, or for policies of other configurations, each has its own, one after the other.
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
    """All that an engine reads when it starts, but the weights."""
    read = [(folder / name) for name in ("config.json", "generation_config.json")]
    texts = [file.read_text() if file.is_file() else None for file in read]
    # what a policy is used with is read when the engine starts, too
    beside = [hash_folder(folder / name) for name in (GATE, MASK) if (folder / name).is_dir()]
    return json.dumps([texts, repr(settings), longest, all_of(end), str(dtype), repr(read_use(folder)), beside])
