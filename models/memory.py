"""Memory that runs out: told apart from other errors, and said in one line that names what needed it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from models.errors import UserError

SAYINGS = ("can't allocate memory", "Cannot allocate memory", "can't start new thread")
"""How torch, safetensors and Python put it where the error's kind is lost."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device or this machine had no memory left."""
    return (
        isinstance(error, MemoryError | torch.OutOfMemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or any(saying in str(error) for saying in SAYINGS)
    )


@contextmanager
def needs_memory(what: str) -> Iterator[None]:
    """An error of memory inside becomes the one line that says so.

    Args:
        what: step that needs it, for the line.

    Raises:
        UserError: there was none left.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, UserError) or not is_out_of_memory(error):
            raise
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": ")
        raise UserError(
            f"{what}: no memory left ({reason}); the same command goes on from the last checkpoint, and "
            "`rewardflow plan` shows what takes how much"
        ) from error
