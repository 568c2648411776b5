"""The choice of precision: what the processor supports, the measurement, and choices that are kept or fixed."""

import json
import time
from pathlib import Path

import pytest
import torch

from models.base import processor as processors
from models.learner import precision as precisions
from models.learner.precision import (
    LEAST_GAIN,
    REPEATS,
    Precision,
    PrecisionTiming,
    fastest_precision,
    fix_precision,
    measured,
    shape_of,
)
from tests.support.device_here import DEVICE, OF_A_PROCESSOR
from tests.support.tiny_models import tiny_policy

FLAGS = {
    "AMX": ("flags\t\t: fpu avx512f avx512_bf16 amx_bf16 amx_tile", True),
    "AVX-512 with bfloat16": ("flags\t\t: fpu sse2 avx2 avx512f avx512_bf16", True),
    "AVX-512 without bfloat16": ("flags\t\t: fpu sse2 avx2 avx512f avx512bw avx512_vnni", False),
    "AVX2": ("flags\t\t: fpu sse2 avx2 fma f16c", False),
    "ARM with bfloat16": ("Features\t: fp asimd asimdhp sve bf16 i8mm", True),
    "ARM without bfloat16": ("Features\t: fp asimd evtstrm aes", False),
    "no flags": ("model name\t: a processor", None),
}


@pytest.fixture(autouse=True)
def of_bfloat16(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the processor appear to have bfloat16 products, so that it is measured."""
    cpuinfo = tmp_path_factory.mktemp("proc") / "cpuinfo"
    cpuinfo.write_text(FLAGS["AVX-512 with bfloat16"][0])
    monkeypatch.setattr(processors, "CPUINFO", cpuinfo)


@pytest.mark.parametrize(("line", "expected"), FLAGS.values(), ids=FLAGS)
def test_products_in_bfloat16_are_known_by_the_instruction_sets(line: str, expected: bool | None) -> None:
    processors.CPUINFO.write_text(f"processor\t: 0\n{line}\n")
    assert processors.processor().multiplies_bfloat16 is expected


@OF_A_PROCESSOR
def test_a_processor_that_emulates_bfloat16_measures_nothing_but_takes_what_was_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny_policy(torch.float32)
    fastest_precision(model, tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_text(json.dumps({"float32": 9.0, "bfloat16": 1.0}))
    caplog.clear()
    processors.CPUINFO.write_text(FLAGS["AVX2"][0])
    assert fastest_precision(model, tmp_path) == "bfloat16"
    assert fastest_precision(tiny_policy(torch.float32, vocabulary=32), tmp_path) == "float32"
    assert list(tmp_path.iterdir()) == [file] and not caplog.records


@OF_A_PROCESSOR
def test_a_measurement_has_a_line_before_and_after(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fastest_precision(tiny_policy(torch.float32), tmp_path)
    before, after = (record.getMessage() for record in caplog.records)
    assert "times passes in float32 and bfloat16" in before
    assert after.startswith(("policy.precision: float32 (", "policy.precision: bfloat16 ("))


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize(("slower", "passes"), [(0.0, 2 * (1 + REPEATS)), (1.0, 2)])
def test_a_slow_warm_up_pass_in_bfloat16_ends_the_measurement(
    monkeypatch: pytest.MonkeyPatch, slower: float, passes: int
) -> None:
    monkeypatch.setattr(precisions, "HOPELESS_SECONDS", 0.5)
    made = []

    def slow(module: torch.nn.Module, given: object, states: torch.Tensor) -> None:
        """Wait if products are in bfloat16, like an emulation; short probes of the attention do not count as passes."""
        if states.shape[-2] > 100:
            made.append(torch.is_autocast_enabled(states.device.type))
            time.sleep(slower * made[-1])

    model = tiny_policy(torch.float32)
    model.model.layers[0].mlp.register_forward_hook(slow)
    choice = measured(model)
    assert len(made) == passes
    assert not slower or choice.precision == "float32"


@pytest.mark.parametrize(
    ("float32", "bfloat16", "expected"),
    [(4.0, 1.0, "bfloat16"), (1.0, 1.0, "float32"), (1.0, 2.0, "float32"), (LEAST_GAIN - 0.01, 1.0, "float32")],
)
def test_half_precision_is_taken_where_it_is_clearly_faster(float32: float, bfloat16: float, expected: str) -> None:
    assert PrecisionTiming(float32, bfloat16).precision == expected


def test_measuring_changes_neither_weights_nor_gradients_nor_random_numbers() -> None:
    model = tiny_policy(torch.float32).train()
    before, state = {name: p.clone() for name, p in model.named_parameters()}, torch.random.get_rng_state()
    choice = measured(model)
    assert choice.float32 > 0 and choice.bfloat16 > 0
    assert model.training and torch.equal(torch.random.get_rng_state(), state)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]) and parameter.grad is None


@OF_A_PROCESSOR
@pytest.mark.parametrize("faster", ["float32", "bfloat16"])
def test_a_choice_is_made_once_and_kept(tmp_path: Path, faster: str) -> None:
    model = tiny_policy(torch.float32)
    fastest_precision(model, tmp_path)
    (file,) = tmp_path.iterdir()
    assert set(json.loads(file.read_text())) == {"float32", "bfloat16", "chosen", "threads"}
    file.write_text(json.dumps({"float32": 9.0, "bfloat16": 9.0, faster: 1.0}))
    assert fastest_precision(model, tmp_path) == faster


@OF_A_PROCESSOR
def test_a_broken_file_is_measured_again(tmp_path: Path) -> None:
    model = tiny_policy(torch.float32)
    fastest_precision(model, tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_text('{"float32":')
    fastest_precision(model, tmp_path)
    assert json.loads(file.read_text())["float32"] > 0


@OF_A_PROCESSOR
def test_models_of_another_shape_have_a_choice_of_their_own(tmp_path: Path) -> None:
    fastest_precision(tiny_policy(torch.float32), tmp_path)
    fastest_precision(tiny_policy(torch.float32, vocabulary=32), tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


@OF_A_PROCESSOR
@pytest.mark.parametrize("fixed", ["float32", "bfloat16"])
def test_a_precision_that_was_fixed_for_a_shape_is_taken_whatever_is_faster_and_nothing_is_measured(
    tmp_path: Path, fixed: Precision
) -> None:
    model, other = tiny_policy(torch.float32), tiny_policy(torch.float32, vocabulary=32)
    assert shape_of(model) == shape_of(tiny_policy(torch.float32)) != shape_of(other)
    fix_precision(tmp_path, shape_of(model), fixed)
    assert fastest_precision(model, tmp_path) == fixed
    assert len(list(tmp_path.iterdir())) == 1
    fastest_precision(other, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    (tmp_path / f"fixed-{shape_of(model)}.json").write_text('{"fixed": "int3"}')
    fastest_precision(model, tmp_path)
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.skipif(DEVICE.type == "cpu", reason="a processor measures")
def test_on_a_gpu_bfloat16_is_taken_unmeasured_but_for_a_precision_that_was_fixed(tmp_path: Path) -> None:
    model = tiny_policy(torch.float32)
    assert fastest_precision(model, tmp_path) == "bfloat16" and not list(tmp_path.iterdir())
    fix_precision(tmp_path, shape_of(model), "float32")
    assert fastest_precision(model, tmp_path) == "float32"
