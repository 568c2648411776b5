"""Transfer of values to a device: equal to torch's own copies, bit for bit, and without a wait for the GPU."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from models.learner.packing import Sequences, packed_row
from models.learner.upload import all_to_device, to_device
from tests.support.device_here import DEVICE

ON_CUDA = pytest.mark.skipif(DEVICE.type != "cuda", reason="only CUDA counts its waits")
DRAWN = torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def never_waiting() -> Iterator[None]:
    """Make CUDA raise an error on every operation for which the host waits."""
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("dtype", [None, torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("values", [DRAWN, DRAWN.T, DRAWN[::2, 1], DRAWN[:0], DRAWN[0, 0].expand(4)])
def test_a_copy_has_the_bits_of_a_plain_one(values: Tensor, dtype: torch.dtype | None) -> None:
    sent, plain = to_device(values, DEVICE, dtype), values.to(DEVICE, dtype or values.dtype)
    assert sent.device == plain.device and sent.dtype == plain.dtype
    assert torch.equal(sent.cpu(), plain.cpu())


def test_what_is_there_already_stays() -> None:
    there = DRAWN.to(DEVICE)
    assert to_device(there, there.device) is there


@pytest.mark.parametrize("lengths", [[], [3], [2, 0, 5], [1, 1, 4]])
def test_tensors_that_go_together_arrive_one_by_one_in_their_order(lengths: list[int]) -> None:
    values = list(torch.arange(sum(lengths)).split(lengths)) if lengths else []
    sent = all_to_device(values, DEVICE)
    assert [each.tolist() for each in sent] == [each.tolist() for each in values]
    assert all(each.device.type == DEVICE.type for each in sent)


@pytest.mark.skipif(DEVICE.type == "cuda", reason="CUDA is what memory is pinned for")
def test_nothing_is_pinned_for_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(values: Tensor) -> Tensor:
        raise AssertionError("there is nothing that memory could be pinned for")

    monkeypatch.setattr(Tensor, "pin_memory", refused)
    assert torch.equal(to_device(DRAWN, DEVICE).cpu(), DRAWN)
    assert len(all_to_device([DRAWN[0], DRAWN[1]], DEVICE)) == 2


@ON_CUDA
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.usefixtures("never_waiting")
def test_no_packed_row_waits_for_a_gpu(nested: bool) -> None:
    row = packed_row(Sequences([[1, 2], [1, 2], [3]], [[4, 5], [6], [7]], nested=nested), DEVICE)
    to_device(DRAWN, DEVICE, torch.float32)
    assert row.ids.device.type == "cuda"
