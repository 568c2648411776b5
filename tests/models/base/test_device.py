"""The device of the tests (`--device`): the tests run on it, and it computes what the processor computes.

The stand-in must refuse what a GPU refuses; otherwise a test that passes on it proves nothing.
"""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from models.base.device import device, has_gpu, on_device
from tests.support.device_here import DEVICE, placed

ELSEWHERE = pytest.mark.skipif(DEVICE.type == "cpu", reason="the device is the processor: --device cuda, or standin")


def here(*shape: int) -> Tensor:
    return placed(torch.arange(float(torch.Size(shape).numel())).view(shape) + 1.0)


def test_what_is_tested_runs_where_the_tests_put_their_models() -> None:
    assert device().type == DEVICE.type and has_gpu() == (DEVICE.type != "cpu")
    tied = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    tied[1].weight = tied[0].weight
    assert on_device(tied) is tied and tied[1].weight is tied[0].weight
    assert {weight.device.type for weight in tied.parameters()} == {DEVICE.type}


@ELSEWHERE
@pytest.mark.parametrize("mixed", [
    lambda: here(2, 2) + torch.ones(2, 2),
    lambda: here(2, 2) @ torch.ones(2, 2),
    lambda: torch.cat([here(2), torch.ones(2)]),
    lambda: torch.where(torch.ones(2, dtype=torch.bool), here(2), here(2)),
    lambda: here(2, 2).gather(1, torch.zeros(2, 1, dtype=torch.long)),
    lambda: nn.functional.embedding(torch.tensor([0]), here(2, 2)),
    lambda: torch.equal(here(2), torch.ones(2)),
    lambda: torch.ones(2)[here(1).long() * 0],
    lambda: here(3).index_put_((torch.tensor([1, 2]),), torch.ones(2)),
    lambda: torch.ones(3).index_put_((torch.tensor([1, 2]),), here(2)),
    lambda: torch.randn(2, device=DEVICE, generator=torch.Generator()),
])  # fmt: skip
def test_tensors_of_both_devices_are_refused_and_so_is_the_processors_generator(mixed: Callable[[], Tensor]) -> None:
    with pytest.raises(RuntimeError, match=r"device|generator"):
        mixed()


@ELSEWHERE
def test_the_processor_cannot_read_what_stands_there() -> None:
    with pytest.raises(TypeError, match="numpy"):
        here(2).numpy()
    assert here(2).tolist() == [1.0, 2.0] and here(2).cpu().device.type == "cpu"


@ELSEWHERE
def test_numbers_and_places_of_the_processor_are_taken_as_on_a_gpu() -> None:
    assert (here(2) * torch.tensor(2.0)).tolist() == [2.0, 4.0]
    assert here(3)[torch.tensor([2, 0])].tolist() == [3.0, 1.0]
    written = here(3)
    written[torch.tensor([2, 0])] = torch.tensor(7.0)
    assert written.tolist() == [7.0, 2.0, 7.0]
    # torch copies indices from the GPU for a write on the processor, but refuses them for a read (see above).
    assert torch.zeros(3).index_put_((here(2).long(),), torch.ones(2)).tolist() == [0.0, 1.0, 1.0]


def test_values_gradients_and_steps_are_those_of_the_processor() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)).double()
    other = placed(copy.deepcopy(model))
    rows = torch.randn(5, 8, dtype=torch.float64)
    for each, read in ((model, rows), (other, placed(rows))):
        optimiser = torch.optim.AdamW(each.parameters(), lr=0.1, fused=True)
        for _ in range(3):
            optimiser.zero_grad()
            each(read).log_softmax(-1).square().sum().backward()
            optimiser.step()
    for left, right in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(right.cpu(), left, rtol=1e-12, atol=1e-12)


def test_a_view_writes_into_what_it_is_a_view_of() -> None:
    whole = here(3, 4)
    whole[1:, ::2].mul_(10.0)
    whole.T[3].zero_()
    assert whole.tolist() == [[1, 2, 3, 0], [50, 6, 70, 0], [90, 10, 110, 0]]


@ELSEWHERE
def test_under_autocast_products_are_half_and_sums_are_not() -> None:
    with torch.autocast(DEVICE.type, dtype=torch.bfloat16):
        product = nn.functional.linear(here(2, 2), here(2, 2))
        assert product.dtype == torch.bfloat16 and torch.softmax(product, -1).dtype == torch.float32
