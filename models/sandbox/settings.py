"""Resources that a program in the sandbox may use, as set in a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from models.base.bounds import Positive

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
