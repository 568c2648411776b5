"""Build of `standin.cpp`, and its registration with torch as a device: tests of code for GPUs without a GPU.

The tensors of the stand-in are in the processor's memory and are computed by the processor's kernels, but torch treats
them as tensors of another device. Code that mixes the two devices, or reads the wrong one, fails as on a GPU. The build
needs a C++ compiler, ninja, and torch without CUDA: torch with CUDA looks for a device's gradients only on CUDA.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import types
from hashlib import sha256
from pathlib import Path

import torch

SOURCE = Path(__file__).with_name("standin.cpp")
TYPE = "hpu"
"""The device type under which the stand-in is registered."""
COMPILE = (
    "import sys; from torch.utils.cpp_extension import load; "
    "load('standin', [sys.argv[1]], build_directory=sys.argv[2], is_python_module=False, extra_cflags=['-O1'])"
)


def build(folder: Path) -> Path:
    """Return the library. It is built once for each version of torch, Python and the source.

    Args:
        folder: folder for the libraries.

    Raises:
        RuntimeError, OSError: the library cannot be compiled here, or torch has CUDA.
    """
    if torch.version.cuda:
        raise RuntimeError(f"torch {torch.__version__} is built for CUDA; the stand-in wants one without")
    made = folder / f"{sha256(SOURCE.read_bytes() + repr((torch.__version__, sys.version)).encode()).hexdigest()}.so"
    if not made.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            # In a separate process, because the build also loads the library: here, only `register` may load it.
            done = subprocess.run(
                [sys.executable, "-c", COMPILE, str(SOURCE), place], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise RuntimeError(done.stderr[-2000:])
            os.replace(Path(place) / "standin.so", made)
    return made


def register(library: Path) -> torch.device:
    """Register the stand-in with torch in this process, once, and return its device."""
    torch.ops.load_library(library)
    if not hasattr(torch, TYPE):
        torch._register_device_module(TYPE, _module())
    return torch.device(TYPE, 0)


def _module() -> types.ModuleType:
    """Return a module with the functions that torch calls in a device's module."""
    module = types.ModuleType(f"torch.{TYPE}")
    answers = {
        "is_available": True,
        "is_initialized": True,
        "_is_in_bad_fork": False,
        "device_count": 1,
        "current_device": 0,
        "manual_seed_all": None,
        "synchronize": None,
        "_lazy_init": None,
        "is_bf16_supported": True,
        "get_amp_supported_dtype": [torch.bfloat16, torch.float16],
    }
    for name, answer in answers.items():
        setattr(module, name, lambda *_, answer=answer, **__: answer)
    sys.modules[module.__name__] = module
    return module
