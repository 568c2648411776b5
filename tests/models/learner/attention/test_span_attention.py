"""Attention by spans and by rectangles: with plain matrix products, and on a CUDA device also with its kernels."""

import pytest
import torch
from torch import Tensor

from models.learner.attention import span_tables as tables_module
from models.learner.attention.span_attention import span_attention
from models.learner.attention.span_tables import (
    ON_DEVICE,
    RowTables,
    rectangle_tables,
    rounded_down,
    rounded_up,
    span_tables,
)
from models.learner.layout import Layout, allowed
from models.learner.packing import Sequences, packed_row
from tests.support.device_here import DEVICE

ROWS = Sequences([[1, 2, 3], [1, 2, 3], [4], [9] * 9], [[5, 6], [7, 8, 9, 10], [11, 12], [3] * 5])
LONG = Sequences([[1] * 11, [1] * 11, [1] * 11, [4] * 3, [7] * 4, [7] * 4], [[5] * 9, [7] * 4, [6], [2] * 17, [3], [8]])
HEADS, KEY_HEADS, SIZE = 4, 2, 8


def attend_dense(query: Tensor, key: Tensor, value: Tensor, layout: Layout, window: int | None) -> Tensor:
    """Compute attention with the layout as a dense mask, [1, tokens, heads, size]."""
    seen = allowed(layout, query.device, window)
    scores = 0.3 * query[0] @ key[0].repeat_interleave(2, dim=0).transpose(1, 2)
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    return (weights @ value[0].repeat_interleave(2, dim=0)).transpose(0, 1)[None]


def assert_same_values_and_gradients(layout: Layout, tables: RowTables, window: int | None) -> None:
    torch.manual_seed(0)
    query, key, value = (
        torch.randn(1, heads, layout.tokens, SIZE, dtype=torch.float64, requires_grad=True)
        for heads in (HEADS, KEY_HEADS, KEY_HEADS)
    )
    expected = attend_dense(query, key, value, layout, window)
    out = span_attention(query, key, value, tables, 0.3, window)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    weights = torch.randn_like(expected)
    own, of_expected = (torch.autograd.grad((part * weights).sum(), (query, key, value)) for part in (out, expected))
    torch.testing.assert_close(own, of_expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("sequences", [ROWS, LONG])
@pytest.mark.parametrize("window", [None, 1, 3])
def test_spans_give_what_the_layout_written_out_gives(sequences: Sequences, window: int | None) -> None:
    layout = packed_row(sequences).layout
    assert_same_values_and_gradients(layout, RowTables(layout, span_tables(layout), None), window)


@pytest.mark.parametrize("sequences", [ROWS, LONG])
@pytest.mark.parametrize("step", [1, 4, 16])
def test_rectangles_give_what_the_layout_written_out_gives(
    sequences: Sequences, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a step of 16 no prompt has a rectangle; with a step of 1 every shared prompt is one whole rectangle."""
    monkeypatch.setattr(tables_module, "LEAST_STEP", step)
    layout = packed_row(sequences).layout
    prompts = rectangle_tables(layout)[1]
    assert len(prompts) == (0 if step == 16 else len([p for p in layout.prefixes if p.end - p.start >= step]))
    assert_same_values_and_gradients(layout, RowTables(layout, span_tables(layout), rectangle_tables(layout)), None)


@pytest.mark.skipif(
    "__import__('tests.support.device_here', fromlist=['DEVICE']).DEVICE.type != 'cuda'",
    reason="the kernels are those of a CUDA device",
)
@pytest.mark.parametrize("route", ["spans", "rectangles"])
@pytest.mark.parametrize("groups", [[(700, [1500, 900])], [(5, [1300])], [(1024, [600, 1200, 800]), (300, [40])]])
def test_kernels_of_the_device_are_as_near_to_float32_as_bfloat16_is(
    route: str, groups: list[tuple[int, list[int]]]
) -> None:
    prompts = [[group] * prompt for group, (prompt, lengths) in enumerate(groups) for _ in lengths]
    layout = packed_row(Sequences(prompts, [[9] * length for _, lengths in groups for length in lengths])).layout
    spans = [table.to(DEVICE) if place < ON_DEVICE else table for place, table in enumerate(span_tables(layout))]
    tables = RowTables(layout, spans, rectangle_tables(layout) if route == "rectangles" else None)
    torch.manual_seed(0)
    leaves = [torch.randn(1, heads, layout.tokens, 64, device=DEVICE) for heads in (HEADS, KEY_HEADS, KEY_HEADS)]
    weights = torch.randn(1, layout.tokens, HEADS, 64, device=DEVICE)
    results = []
    for dtype in (torch.float32, torch.bfloat16):
        query, key, value = (leaf.bfloat16().to(dtype).requires_grad_() for leaf in leaves)
        if dtype == torch.float32:
            out = attend_dense(query, key, value, layout, None)
        else:
            out = span_attention(query, key, value, tables, 0.3, None)
        results.append((out, *torch.autograd.grad((out * weights.to(dtype)).sum(), (query, key, value))))
    for exact, rounded in zip(*results, strict=True):
        assert torch.isfinite(rounded).all()
        assert float((rounded.float() - exact).norm() / exact.norm()) < 0.02


def test_rectangles_have_few_lengths() -> None:
    lengths = {rounded_up(tokens) for tokens in range(1, 16385)}
    assert len(lengths) == 16 + 16 + 16 + 16  # steps of 128 up to 2,048, then 16 steps in each doubling
    for tokens in range(1, 5000):
        assert rounded_down(tokens) <= tokens <= rounded_up(tokens)
        assert rounded_up(tokens) - tokens < max(128, tokens / 8)
