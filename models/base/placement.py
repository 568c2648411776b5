"""Placement of a training: its numbers of learner processes and engines, and their GPUs."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from models.base.errors import UserError


@dataclass(frozen=True, kw_only=True)
class PlacementSettings:
    """Processes of a run. Set under `placement:`.

    It is not part of a result's key: results made with other values are reused, and a stopped run may resume
    with others.
    """

    learners: Annotated[int, Field(ge=1, le=1024)] = 1
    """Number of processes that learn together."""
    engines: Annotated[int, Field(ge=0, le=1024)] = 0
    """Number of engines in separate processes, which share the work; 0: one engine in the learner's process."""
    engine_gpus: Annotated[float, Field(ge=0, le=64)] = 1
    """Number of GPUs per engine, or below 1 the share of a GPU. With two or more, the engine's matrices are sharded
    over them (tensor parallel, only vLLM); on a machine without GPUs, over as many processes."""

    def __post_init__(self) -> None:
        """Refuse a fraction of several GPUs."""
        if self.engine_gpus > 1 and self.engine_gpus != int(self.engine_gpus):
            raise ValueError(f"engine_gpus is {self.engine_gpus:g}: a share of one GPU, or a whole number of them")

    @property
    def ways(self) -> int:
        """Number of GPUs, or processes, that an engine's matrices are sharded over."""
        return max(1, int(self.engine_gpus))

    @property
    def placed(self) -> bool:
        """Whether the run has processes in addition to this one."""
        return self.learners > 1 or self.engines > 0

    @property
    def next_to_learners(self) -> PlacementSettings:
        """The same settings with at least one engine if there are several learners: no learner has room for one."""
        return replace(self, engines=max(1, self.engines)) if self.learners > 1 else self

    def check(self, address: str | None) -> None:
        """Check that Ray is installed if the run has several processes, and that a cluster is given only for these.

        Args:
            address: address of the Ray cluster to place them on; None: this machine.

        Raises:
            UserError: Ray is not installed, or there is nothing to place on the cluster.
        """
        if self.placed and importlib.util.find_spec("ray") is None:
            raise UserError(f"placement: {self} are placed by Ray, which is not installed; install the extra cluster")
        if address is not None and not self.placed:
            raise UserError(
                f"--cluster {address}: nothing is placed there; set placement.learners to 2 or placement.engines to 1"
            )

    def __str__(self) -> str:
        if not self.placed:
            return "in one process"
        return f"{self.learners} learners, {self.next_to_learners.engines} engines of {self.engine_gpus:g} GPU"
