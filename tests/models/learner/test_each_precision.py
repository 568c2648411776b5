"""Packed rows with shared prompts are as near to float64 as the model's own plain pass, in float32 and in bfloat16.

This holds for log-probs, entropies and every gradient, with all weights and with only an adapter.
"""

import copy
import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from models.learner.log_probs import completion_log_probs
from models.learner.packing import Sequences
from models.policies.build import LoraSettings, with_adapter
from tests.support.architectures import built, loss_and_gradients, plain
from tests.support.device_here import DEVICE

FAMILIES = ("llama", "qwen3", "gemma", "gemma2, window 6")


def drawn(length: int, seed: int) -> list[int]:
    return torch.randint(3, 61, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


GROUPS = Sequences(
    [drawn(30, seed=prompt) for prompt in range(3) for _ in range(4)],
    [drawn(length, seed=10 + length) for length in (1, 40, 7, 22, 33, 2, 18, 5, 60, 12, 3, 27)],
)
"""Three prompts with four completions each, which have 230 tokens in total."""


def model_of(family: str, adapted: bool) -> Any:
    """Return the model in float32; an adapter has B matrices that are not zero, as after training."""
    model = built(family, torch.float32)
    if not adapted:
        return model
    model = with_adapter(model, LoraSettings(rank=4, alpha=8), seed=0)
    chance = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=chance))
    return model.eval()


def error(actual: Mapping[str, Tensor], exact: Mapping[str, Tensor]) -> float:
    """Return the norm of the difference over all values, relative to the norm of the exact ones."""
    apart = sum(float((actual[name].double() - exact[name]).square().sum()) for name in exact)
    return math.sqrt(apart / sum(float(value.square().sum()) for value in exact.values()))


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("adapted", [False, True], ids=["all weights", "adapter"])
@pytest.mark.parametrize(
    ("precision", "worst"), [(torch.float32, 1e-4), (torch.bfloat16, 0.2)], ids=["float32", "bfloat16"]
)
@pytest.mark.parametrize("family", FAMILIES)
def test_log_probs_and_gradients_are_as_near_to_float64_as_those_of_a_plain_pass(
    family: str, precision: torch.dtype, worst: float, adapted: bool
) -> None:
    model = model_of(family, adapted)
    half = precision == torch.bfloat16
    wide = copy.deepcopy(model).double()
    exact = plain(wide, GROUPS, 1.0)
    of_exact = loss_and_gradients(wide, exact)[1]
    ours = completion_log_probs(model, GROUPS, autocast=precision if half else None)
    of_ours = loss_and_gradients(model, ours)[1]
    with torch.autocast(DEVICE.type, dtype=torch.bfloat16, enabled=half):
        theirs = plain(model, GROUPS, 1.0)
    of_theirs = loss_and_gradients(model, theirs)[1]
    assert set(of_ours) == set(of_exact) and (len(of_ours) > 40 or not adapted)
    for actual, usual, true in (
        ({"log_prob": ours[0]}, {"log_prob": theirs[0]}, {"log_prob": exact[0].detach()}),
        ({"entropy": ours[1]}, {"entropy": theirs[1]}, {"entropy": exact[1].detach()}),
        (of_ours, of_theirs, of_exact),
    ):
        assert error(actual, true) <= 1.5 * error(usual, true) + 1e-7 and error(actual, true) < worst
    for name, wanted in of_exact.items():  # also a small gradient, which the norm over all would hide
        usually = error({name: of_theirs[name]}, {name: wanted})
        assert error({name: of_ours[name]}, {name: wanted}) <= 3.0 * usually + 1e-6, name
