"""The device for tests of the learning core: `pytest --device cpu`, `cuda` or `standin`.

`standin` is the processor under another device's name (`standin/standin.cpp`). It shows on any machine whether tensors
are on the right device. It does not show a GPU's rounding, kernels or speed. The values that a part passes to the rest
of the pipeline (rewards, log-probs of completions) are on the processor, whichever device is chosen: tests compare them
with values moved by `.cpu()`.

Tolerances:

- float64: the same as on a processor, 1e-9 to 1e-12, on every device.
- float32: 1e-5 of the largest entry, without TF32, which `choose` disables.
- float32 and bfloat16, where a test measures rounding: the error relative to float64 is at most 1.5 times that of the
  model's plain pass in the same precision, over all gradients together, and at most 3 times for each gradient.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, TypeVar

import pytest
import torch
from torch import Tensor, nn

DEVICE = torch.device("cpu")
"""The device of this run. `choose` sets it before any test is imported."""
Placed = TypeVar("Placed", Tensor, nn.Module)


def choose(kind: Literal["cuda", "standin"], cache: Path) -> None:
    """Make the tests and the tested code compute on a device.

    On a GPU, operations are deterministic where torch supports this, so that results that are equal bit for bit on a
    processor are equal there too.

    Args:
        cache: folder for the compiled stand-in.

    Raises:
        pytest.UsageError: the device is not available, or the stand-in cannot be built.
    """
    global DEVICE
    if kind == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts
        if not torch.cuda.is_available():
            raise pytest.UsageError("--device cuda: no CUDA device is to be had")
        DEVICE = torch.device("cuda", 0)
        torch.use_deterministic_algorithms(True, warn_only=True)  # some operations have no deterministic version
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        return
    from models.base import device
    from tests.support.standin.build import build, register

    try:
        DEVICE = register(build(cache))
    except (RuntimeError, OSError) as error:
        raise pytest.UsageError(f"--device standin: it cannot be built ({error})") from None
    device.device = lambda: DEVICE


OF_A_PROCESSOR = pytest.mark.skipif(
    "__import__('tests.support.device_here', fromlist=['DEVICE']).DEVICE.type != 'cpu'",
    reason="what it is about is done on a processor alone",
)


def placed(value: Placed) -> Placed:
    """Return a tensor on the device of this run, or move a model there in place and return it."""
    return value.to(DEVICE)
