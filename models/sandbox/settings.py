"""What a program in the sandbox may use, as a recipe says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from models.bounds import Positive

Seconds = Annotated[float, Field(gt=0, le=3600)]


@dataclass(frozen=True, kw_only=True)
class SandboxSettings:
    """Limits of the sandbox. Stands under `sandbox:` of a part that runs programs."""

    seconds: Seconds = 5.0
    """Of the clock, for one call of a program, or for a script."""
    seconds_together: Seconds = 15.0
    """Of the clock, for all cases of a program."""
    memory_mb: Annotated[int, Field(ge=32, le=262144)] = 512
    """Megabytes of addresses of a process. Each thread takes 8 for its stack."""
    file_mb: Positive = 8
    """Megabytes of a file."""
    scratch_mb: Positive = 64
    """Megabytes of all files together; they lie in memory."""
    open_files: Annotated[int, Field(ge=8, le=1024)] = 32
    """Files that are open at once."""
    processes: Annotated[int, Field(ge=1, le=4096)] = 32
    """Processes that run at once, where programs may start any: in the profile for compilers."""
    output_kb: Annotated[int, Field(ge=1, le=1024)] = 64
    """Kilobytes that are kept of what a script prints."""
    workers: Positive | None = None
    """Programs that run side by side; null: as many as this process has cores."""
    unprotected: bool = False
    """Run programs though this machine has too few layers to hold them: whatever you may do they may then do too."""
