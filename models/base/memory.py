"""Detection of out-of-memory errors, and their report in one line that names the step that needed the memory."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from models.base.errors import UserError

ERROR_TEXTS = ("can't allocate memory", "Cannot allocate memory", "can't start new thread")
"""Texts of out-of-memory errors of torch, safetensors and Python that have no exception type of their own."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that a device or this machine ran out of memory."""
    return (
        isinstance(error, MemoryError | torch.OutOfMemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or any(saying in str(error) for saying in ERROR_TEXTS)
    )


@contextmanager
def needs_memory(what: str) -> Iterator[None]:
    """Convert an out-of-memory error inside the context into a one-line UserError.

    Args:
        what: step that needs it, for the line.

    Raises:
        UserError: no memory was left.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, UserError) or not is_out_of_memory(error):
            raise
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": ")
        raise UserError(
            f"{what}: no memory left ({reason}); the same command resumes from the last checkpoint, and "
            "`rewardflow plan` shows what takes how much"
        ) from error
