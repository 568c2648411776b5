"""Where tests of the learning core put their models: `pytest --device cpu`, `cuda` or `standin`.

`standin` is the processor under another device's name (`standin/standin.cpp`): it shows on any machine that tensors
stand where they must, and says nothing of a GPU's rounding, kernels or speed. What a part gives to the rest of the
pipeline (rewards, log-probs of completions) stands on the processor whatever the device: tests hold it against
`.cpu()`.

Tolerances. float64: those of a processor, 1e-9 to 1e-12, on every device. float32: 1e-5 of the largest entry, without
TF32, which `choose` switches off. Where a precision's own rounding is the measure, float32 and bfloat16: an error from
float64 of at most 1.5 times that of the model's plain pass in the same precision, over all gradients together, and
of 3 times for each.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, TypeVar

import pytest
import torch
from torch import Tensor, nn

DEVICE = torch.device("cpu")
"""Of this run; `choose` sets it before any test is imported."""
Placed = TypeVar("Placed", Tensor, nn.Module)


def choose(kind: Literal["cuda", "standin"], cache: Path) -> None:
    """Have the tests, and what they test, compute on a device; on a GPU in a fixed order, so that what is the same to
    the bit on a processor is so there.

    Args:
        cache: folder for what is built.

    Raises:
        pytest.UsageError: it cannot be had.
    """
    global DEVICE
    if kind == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts
        if not torch.cuda.is_available():
            raise pytest.UsageError("--device cuda: no CUDA device is to be had")
        DEVICE = torch.device("cuda", 0)
        torch.use_deterministic_algorithms(True, warn_only=True)  # of what has no fixed order there is one way alone
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
    """A tensor, or a model in place, on the device of this run."""
    return value.to(DEVICE)
