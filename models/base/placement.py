"""Placement of a training: the number of processes and engines, and their GPUs."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from models.base.errors import UserError


@dataclass(frozen=True, kw_only=True)
class PlacementSettings:
    """Processes of a run. Set under `placement:`. It is not part of a result's key: results made with other numbers are
    reused, and a stopped run can resume with others."""

    learners: Annotated[int, Field(ge=1, le=1024)] = 1
    """Processes that learn together."""
    engines: Annotated[int, Field(ge=0, le=1024)] = 0
    """Engines in processes of their own, which share the completions; 0: the learner's process has one."""
    engine_gpus: Annotated[float, Field(ge=0, le=64)] = 1
    """GPUs of each of these engines, or the share of one that several have. With two or more the engine's matrices are
    sharded (tensor parallel, vLLM alone); on a machine without GPUs they are processes."""

    def __post_init__(self) -> None:
        """Refuse a fraction of several GPUs."""
        if self.engine_gpus > 1 and self.engine_gpus != int(self.engine_gpus):
            raise ValueError(f"engine_gpus is {self.engine_gpus:g}: a share of one GPU, or a whole number of them")

    @property
    def ways(self) -> int:
        """Number of parts that an engine's matrices are sharded into."""
        return max(1, int(self.engine_gpus))

    @property
    def placed(self) -> bool:
        """Whether the run has processes in addition to this one."""
        return self.learners > 1 or self.engines > 0

    @property
    def beside_learners(self) -> PlacementSettings:
        """The same settings, with at least one engine if there are several learners: no learner has room for one."""
        return replace(self, engines=max(1, self.engines)) if self.learners > 1 else self

    def check(self, address: str | None) -> None:
        """Check that the processes can be placed.

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
        return f"{self.learners} learners, {self.beside_learners.engines} engines of {self.engine_gpus:g} GPU"
