"""A sandbox with the profile for compilers. A test that needs it is skipped if this machine does not support it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from models.base.errors import UserError
from models.sandbox.sandbox import Sandbox
from models.sandbox.settings import SandboxSettings


@contextmanager
def compiler_sandbox(limits: SandboxSettings) -> Iterator[Sandbox]:
    made = Sandbox(limits, compilers=True)
    try:
        assert made.layers.namespaces
    except UserError as error:
        pytest.skip(str(error))
    yield made
    made.close()
