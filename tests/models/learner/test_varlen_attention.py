"""The one call over spans of different lengths, with a stand-in for the kernel that only CUDA has."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from models.learner import varlen_attention as module
from models.learner.layout import allowed
from models.learner.packing import Sequences, packed_row

ROWS = Sequences([[1, 2, 3], [1, 2, 3], [4]], [[5, 6], [7, 8, 9, 10], [11, 12]])
HEADS, KEY_HEADS, SIZE = 4, 2, 8


def dense(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float) -> Tensor:
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale, enable_gqa=True)


def of_spans(
    query: Tensor, key: Tensor, value: Tensor, query_ends: Tensor, key_ends: Tensor, most: int, widest: int,
    *, scale: float, window_size: tuple[int, int],
) -> Tensor:  # fmt: skip
    """What the kernel computes, span by span: causal up to the last key, several heads to one of the keys."""
    assert key.shape[1] == KEY_HEADS, "keys are not written out for every head"
    assert (most, widest) == (int(query_ends.diff().max()), int(key_ends.diff().max()))
    rows = []
    for span in range(len(query_ends) - 1):
        own, seen = slice(*query_ends[span : span + 2].tolist()), slice(*key_ends[span : span + 2].tolist())
        queries, keys = own.stop - own.start, seen.stop - seen.start
        behind = torch.arange(queries)[:, None] + keys - queries - torch.arange(keys)
        mask = (behind >= -window_size[1]) & ((behind <= window_size[0]) | (window_size[0] < 0))
        parts = [part.transpose(0, 1)[None] for part in (query[own], key[seen], value[seen])]
        rows.append(dense(parts[0], parts[1], parts[2], mask, scale)[0])
    return torch.cat([row.transpose(0, 1) for row in rows])


def with_a_flag(*parts: Any, enable_gqa: bool = False, **options: Any) -> Tensor:
    assert enable_gqa, "torch from 2.12 on refuses unequal heads without it"
    return of_spans(*parts, **options)


@pytest.mark.parametrize("kernel", [of_spans, with_a_flag])
@pytest.mark.parametrize("window", [None, 3])
def test_the_spans_give_what_the_layout_written_out_gives(
    kernel: Any, window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_varlen_attn", lambda: kernel)
    layout = packed_row(ROWS).layout
    torch.manual_seed(0)
    query, key, value = (
        torch.randn(1, heads, layout.tokens, SIZE, requires_grad=True) for heads in (HEADS, KEY_HEADS, KEY_HEADS)
    )
    whole = dense(query, key, value, allowed(layout, torch.device("cpu"), window), 0.3).transpose(1, 2)
    spans = module.varlen_attention(query, key, value, layout, 0.3, window)
    torch.testing.assert_close(spans, whole)
    weights = torch.randn_like(whole)
    own, expected = (torch.autograd.grad((out * weights).sum(), (query, key, value)) for out in (spans, whole))
    torch.testing.assert_close(own, expected)
