"""Compiled layers and compiled blocks of the output projection: eager values and gradients, few graphs, equal names."""

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models.base.errors import UserError
from models.learner import compiled_layers, logit_blocks
from models.learner.attention import packed_attention
from models.learner.attention.span_tables import RowTables, rectangle_tables, span_tables
from models.learner.compiled_blocks import compiled
from models.learner.compiled_layers import are_compiled, compile_layers, should_compile
from models.learner.distribution import Distribution
from models.learner.fused_log_probs import Head, fused_log_probs
from models.learner.log_probs import completion_log_probs
from models.learner.recompute import layers_of, recomputing
from models.policies.build import LoraSettings, with_adapter
from tests.support.tiny_models import SEQUENCES, gradients, tiny_policy

pytestmark = pytest.mark.skipif(
    "__import__('tests.support.device_here', fromlist=['DEVICE']).DEVICE.type not in ('cpu', 'cuda')",
    reason="torch's compiler does not know the stand-in",
)


def log_probs_and_gradients(model: nn.Module, *, again: bool = False) -> tuple[Tensor, dict[str, Tensor]]:
    model.zero_grad(set_to_none=True)
    with recomputing(model, again):
        values = completion_log_probs(model, SEQUENCES)[0]
        values.sum().backward()
    return values.detach(), gradients(model)


def graphs() -> int:
    """Return the number of graphs that have been traced so far."""
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def left_as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


@pytest.mark.parametrize("softcap", [None, 3.0])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("entropy", [False, True])
def test_the_functions_of_a_block_give_the_eager_values_and_gradients(
    softcap: float | None, temperature: float, entropy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logit_blocks, "compiled", left_as_it_is)
    eager_values, other = (
        block_values(compile_blocks, softcap, temperature, entropy) for compile_blocks in (False, True)
    )
    for eager, functional in zip(eager_values, other, strict=True):
        torch.testing.assert_close(functional, eager, rtol=1e-12, atol=1e-12)


def block_values(compile_blocks: bool, softcap: float | None, temperature: float, entropy: bool) -> list[Tensor]:
    """Return log-probs, entropies and gradients of 30 tokens over a vocabulary of 200, in three blocks."""
    draw = torch.Generator().manual_seed(0)
    states, weight = (torch.randn(size, 8, dtype=torch.float64, generator=draw) for size in (30, 200))
    targets = torch.randint(200, (30,), generator=draw)
    states.requires_grad_(), weight.requires_grad_()
    head = Head(weight, softcap=softcap, compiled=compile_blocks)
    log_probs, entropies = fused_log_probs(
        states, head, targets, Distribution(temperature=temperature), block_elements=30 * 70
    )
    worth = torch.randn(30, dtype=torch.float64, generator=draw)
    ((log_probs * worth).sum() + (entropies * worth.flip(0)).sum() * entropy).backward()
    assert states.grad is not None and weight.grad is not None
    return [log_probs.detach(), entropies.detach(), states.grad, weight.grad]


@pytest.mark.thorough
@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_traced_layers_give_the_eager_log_probs_and_gradients(
    lora: bool, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logit_blocks, "compiled", left_as_it_is)
    model = tiny_policy(torch.float32)
    model = with_adapter(model, LoraSettings(rank=2), seed=0) if lora else model
    model.eval()
    eager, of_eager = log_probs_and_gradients(model, again=again)
    torch._dynamo.reset()
    compile_layers(model, backend="aot_eager")
    before = graphs()
    traced, of_traced = log_probs_and_gradients(model, again=again)
    assert graphs() > before
    torch.testing.assert_close(traced, eager, rtol=1e-5, atol=1e-6)
    assert of_traced.keys() == of_eager.keys()
    for name, gradient in of_eager.items():
        torch.testing.assert_close(of_traced[name], gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.thorough
def test_all_layers_share_what_is_compiled_once_for_rows_of_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logit_blocks, "compiled", left_as_it_is)
    model = tiny_policy(torch.float32).eval()
    assert len(layers_of(model)) > 1
    torch._dynamo.reset()
    compile_layers(model, backend="aot_eager")
    log_probs_and_gradients(model)
    made = graphs()
    for count in (1, 2):
        completion_log_probs(model, SEQUENCES.take(range(count)))[0].sum().backward()
    assert graphs() == made


@pytest.mark.thorough
@pytest.mark.parametrize("rectangles", [False, True])
def test_the_operation_over_spans_is_part_of_one_graph_a_layer(
    rectangles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a processor, the operation uses plain matrix products instead of its kernels."""
    monkeypatch.setattr(logit_blocks, "compiled", left_as_it_is)
    monkeypatch.setattr(
        packed_attention,
        "tables_of",
        lambda layout, _: RowTables(layout, span_tables(layout), rectangle_tables(layout) if rectangles else None),
    )
    eager, compiled_one = (tiny_policy(torch.float32).eval() for _ in range(2))
    torch._dynamo.reset()
    compile_layers(compiled_one, backend="aot_eager")
    before, breaks = graphs(), len(torch._dynamo.utils.counters["graph_break"])
    for chosen in ([0, 1, 2], [0], [1, 2]):
        some = SEQUENCES.take(chosen)
        values = []
        for model in (eager, compiled_one):
            model.zero_grad(set_to_none=True)
            log_probs = completion_log_probs(model, some, autocast=torch.bfloat16)[0]
            log_probs.sum().backward()
            values.append((log_probs.detach(), gradients(model)))
        (first, of_first), (other, of_other) = values
        torch.testing.assert_close(other, first, rtol=0.02, atol=0.02)
        for name, gradient in of_first.items():
            torch.testing.assert_close(of_other[name], gradient, rtol=0.05, atol=0.05 * float(gradient.abs().max()))
    assert before < graphs() <= before + 2  # torch traces a second graph for rows without a shared prompt
    assert len(torch._dynamo.utils.counters["graph_break"]) == breaks


@pytest.mark.thorough
def test_weights_keep_their_names_and_a_copy_is_eager() -> None:
    model = tiny_policy(torch.float32)
    names = list(model.state_dict())
    compile_layers(model, backend="aot_eager")
    twin = copy.deepcopy(model)
    assert list(model.state_dict()) == names == list(twin.state_dict())
    assert are_compiled(model) and not are_compiled(twin)


def test_auto_compiles_nothing_on_a_processor() -> None:
    model = tiny_policy(torch.float32)
    assert [should_compile(setting, model) for setting in ("auto", True, False)] == [False, True, False]


def test_a_model_without_named_layers_or_cut_over_learners_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny_policy(torch.float32)
    with monkeypatch.context() as patch:
        patch.setattr(compiled_layers, "layers_of", lambda model: [])
        with pytest.raises(UserError, match="does not name the layers of"):
            compile_layers(model)
    monkeypatch.setattr(compiled_layers, "ranks_of", lambda model: SimpleNamespace(count=2))
    with pytest.raises(UserError, match="cut over several learners stays eager"):
        compile_layers(model)


@pytest.mark.thorough
@pytest.mark.parametrize("entropy", [False, True])
def test_compiled_blocks_give_the_eager_values_and_gradients(entropy: bool) -> None:
    eager_values, other = (block_values(compile_blocks, None, 0.7, entropy) for compile_blocks in (False, True))
    for eager, made in zip(eager_values, other, strict=True):
        torch.testing.assert_close(made, eager, rtol=1e-10, atol=1e-10)
    assert compiled(left_as_it_is) is compiled(left_as_it_is)
