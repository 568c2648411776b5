"""Out-of-memory errors, one of them real: each is recognised and reported in one line that names the step."""

import errno

import pytest
import torch

from models.base.errors import UserError
from models.base.memory import is_out_of_memory, needs_memory


def test_an_allocation_that_cannot_be_is_one_line_that_names_the_step() -> None:
    said = r"^fine_tune: no memory left \(RuntimeError: .*allocate memory.*same command"
    with pytest.raises(UserError, match=said), needs_memory("fine_tune"):
        torch.empty(2**60, dtype=torch.uint8)


@pytest.mark.parametrize(
    "error", [MemoryError(), OSError(errno.ENOMEM, "Cannot allocate memory"), RuntimeError("can't start new thread")]
)
def test_it_has_many_kinds(error: Exception) -> None:
    assert is_out_of_memory(error)
    with pytest.raises(UserError, match="no memory left"), needs_memory("step"):
        raise error


@pytest.mark.parametrize("error", [UserError("can't allocate memory, says the user"), ValueError("something else")])
def test_what_is_no_error_of_memory_or_said_already_stays_what_it_is(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, needs_memory("step"):
        raise error
    assert caught.value is error
