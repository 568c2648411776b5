"""Resources that a program in the sandbox may use, as set in a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from models.base.bounds import Positive
from models.base.errors import UserError

IMAGE = "python:3.11-slim"
"""Image of the container runner, if the settings name none."""

Seconds = Annotated[float, Field(gt=0, le=3600)]


@dataclass(frozen=True, kw_only=True)
class SandboxSettings:
    """Limits of the sandbox. Set under `sandbox:` of a part that runs programs."""

    seconds: Seconds = 5.0
    """Wall time of one call of a program, or of a script, seconds."""
    seconds_together: Seconds = 15.0
    """Wall time of all cases of a program, seconds."""
    memory_mb: Annotated[int, Field(ge=32, le=262144)] = 512
    """Address space of a process, megabytes. Each thread takes 8 for its stack."""
    file_mb: Positive = 8
    """Size of a file, megabytes."""
    scratch_mb: Positive = 64
    """Size of all files together, megabytes; they are kept in memory."""
    open_files: Annotated[int, Field(ge=8, le=1024)] = 32
    """Largest number of files that are open at once."""
    processes: Annotated[int, Field(ge=1, le=4096)] = 32
    """Largest number of processes that run at once, if programs may start any: in the profile for compilers."""
    output_kb: Annotated[int, Field(ge=1, le=1024)] = 64
    """Output of a script that is kept, kilobytes."""
    workers: Positive | None = None
    """Number of programs that run in parallel; null: the number of cores of this process."""
    unprotected: bool = False
    """Run programs even if this machine has too few layers to hold them: they then have all of your rights."""
    runner: Literal["local", "container"] = "local"
    """Place where programs run: under the layers of this machine, or in containers of docker or podman."""
    image: str | None = None
    """Image of the containers, with Python 3.11 or newer; null: python:3.11-slim. It must be on this machine. Only the
    runner `container` reads it."""
    engine: Literal["docker", "podman"] | None = None
    """Program that runs the containers; null: docker if it answers, or else podman. Only the runner `container` reads
    it."""

    def __post_init__(self) -> None:
        """Refuse a setting that the chosen runner does not read.

        Raises:
            UserError: there is one.
        """
        if self.runner == "container" and self.unprotected:
            raise UserError("sandbox.unprotected: only the runner local reads it; remove it, or set runner: local")
        for name in ("image", "engine"):
            if self.runner == "local" and getattr(self, name) is not None:
                raise UserError(
                    f"sandbox.{name}: only the runner container reads it; remove it, or set runner: container"
                )
        if self.image is not None and (not self.image.strip() or self.image.startswith("-")):
            raise UserError(f"sandbox.image: {self.image!r} is not the name of an image, such as {IMAGE}")
