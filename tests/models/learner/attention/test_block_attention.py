"""Attention in blocks and in two parts: values and gradients equal the full softmax, in float64 except for one test."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from models.learner.attention import block_attention, rectangles
from models.learner.attention.block_attention import LOG2_E, attend, attend_backward
from models.learner.attention.two_part_attention import two_part_attention
from models.learner.layout import allowed
from models.learner.packing import Sequences, packed_row

EXACT: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-10}


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("elements", "rows"), [(2**18, 128), (2**18, 32), (2**18, 16), (200, 128), (40, 16)])
@pytest.mark.parametrize(("causal", "before"), [(True, 0), (True, 25), (False, 0)])
def test_blocks_equal_the_softmax_written_out(
    elements: int, rows: int, causal: bool, before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_attention, "BLOCK_ELEMENTS", elements)
    monkeypatch.setattr(block_attention, "CAUSAL_ROWS", rows)
    query = numbers(6, 70, 8, seed=0).requires_grad_()
    key, value = (numbers(6, before + 70, 8, seed=seed).requires_grad_() for seed in (1, 2))
    in_stretches = any(part.start for _, part in block_attention._blocks(query, key, causal))
    assert in_stretches == (elements < 70 * (before + 70) or (causal and rows < 70))
    scores = query @ key.transpose(1, 2) * 0.3
    if causal:
        seen = torch.ones(70, before + 70, dtype=torch.bool).tril(before)
        scores = scores.masked_fill(~seen, float("-inf"))
    expected = torch.softmax(scores, -1) @ value
    grad = numbers(6, 70, 8, seed=9)
    expected.backward(grad)
    with torch.no_grad():
        out, lse = attend(query, key, value, 0.3, causal=causal)
        delta = (grad * out).sum(-1)
        gradients = attend_backward(grad, query, key, value, delta, lse, 0.3, causal=causal)
    torch.testing.assert_close(out, expected, **EXACT)
    torch.testing.assert_close(lse / LOG2_E, torch.logsumexp(scores, -1), **EXACT)
    for rollout, tensor in zip(gradients, (query, key, value), strict=True):
        torch.testing.assert_close(rollout, tensor.grad, **EXACT)


@pytest.mark.parametrize("causal", [True, False])
def test_in_half_precision_blocks_are_as_near_to_the_truth_as_the_softmax_written_out(causal: bool) -> None:
    query, key, value, grad = (numbers(4, 200, 16, seed=seed).to(torch.bfloat16) for seed in range(4))
    ahead = torch.ones(200, 200, dtype=torch.bool).triu(1) if causal else torch.zeros(200, 200, dtype=torch.bool)

    def written_out(dtype: torch.dtype) -> list[Tensor]:
        query_, key_, value_ = leaves = [tensor.to(dtype).requires_grad_() for tensor in (query, key, value)]
        scores = (query_ @ key_.transpose(1, 2) * 0.3).masked_fill(ahead, float("-inf"))
        weights = torch.softmax(scores, -1, dtype=torch.promote_types(dtype, torch.float32)).to(dtype)
        out = weights @ value_
        return [out.detach(), *torch.autograd.grad(out, leaves, grad.to(dtype))]

    out, lse = attend(query, key, value, 0.3, causal=causal)
    delta = (grad.float() * out).sum(-1)
    ours = [out, *attend_backward(grad, query, key, value, delta, lse, 0.3, causal=causal)]
    for mine, plain, true in zip(ours, written_out(torch.bfloat16), written_out(torch.float64), strict=True):
        assert float((mine - true).norm()) <= 1.1 * float((plain - true).norm())


@pytest.mark.parametrize("along", [0.0, 1.0, 100.0], ids=["prompts apart", "some apart", "prompts along"])
@pytest.mark.parametrize("call", [0, 2000, 10**9], ids=["by length", "by nearly equal length", "all together"])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_two_parts_equal_attention_under_the_layout_written_out(
    groups: int, seed: int, call: int, along: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rectangles, "ALONG", along)
    monkeypatch.setattr(rectangles, "CALL", call)
    chance = random.Random(seed)
    prompts = [[1] * chance.randint(1, 40), [2] * chance.randint(1, 40), [3]]
    chosen = [prompts[chance.randrange(3)] for _ in range(9)]
    row = packed_row(Sequences(chosen, [[4] * chance.randint(1, 50) for _ in chosen]))
    tokens = len(row.ids)

    def run(attention: Callable[[Tensor, Tensor, Tensor], Tensor]) -> tuple[Tensor | None, ...]:
        query = numbers(1, 4, tokens, 8, seed=1).requires_grad_()
        key, value = (numbers(1, 4 // groups, tokens, 8, seed=seed).requires_grad_() for seed in (2, 3))
        out = attention(query, key, value)
        out.backward(numbers(1, tokens, 4, 8, seed=4))
        return out.detach(), query.grad, key.grad, value.grad

    def written_out(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        scores = query @ key.repeat_interleave(groups, 1).transpose(2, 3) * 0.25
        scores = scores.masked_fill(~allowed(row.layout, torch.device("cpu"), None), float("-inf"))
        return (torch.softmax(scores, -1) @ value.repeat_interleave(groups, 1)).transpose(1, 2)

    actual = run(lambda query, key, value: two_part_attention(query, key, value, row.layout, 0.25))
    for first, other in zip(actual, run(written_out), strict=True):
        torch.testing.assert_close(first, other, **EXACT)


@pytest.mark.parametrize("seed", range(5))
def test_triangles_hold_every_token_once_and_fill_up_less_than_a_call_costs(seed: int) -> None:
    chance = random.Random(seed)
    prompts = [[number + 1] * chance.choice([1, 30, 400]) for number in range(4)]
    chosen = [prompts[chance.randrange(4)] for _ in range(40)]
    layout = packed_row(Sequences(chosen, [[9] * int(chance.paretovariate(1.0) * 8 + 1) for _ in chosen])).layout
    row = rectangles.rectangles(layout, 4, 2, torch.device("cpu"))
    queries = torch.cat([triangles.queries for triangles in row.triangles])
    assert torch.equal(queries[row.queries], torch.arange(layout.tokens * 4))
    filled = sum(0 if triangles.real is None else int((~triangles.real).sum()) for triangles in row.triangles)
    assert len(queries) - filled == layout.tokens * 4
    for triangles in row.triangles:
        longest = len(triangles.queries) // (4 * triangles.spans)
        held = 4 * sum(longest * (triangles.before + longest / 2) for _ in range(triangles.spans))
        lengths = (
            ([longest] * triangles.spans)
            if triangles.real is None
            else (triangles.real.view(triangles.spans, 4, longest)[:, 0].sum(1).tolist())
        )
        needed = 4 * sum(length * (triangles.before + length / 2) for length in lengths)
        assert held - needed <= rectangles.CALL + 4 * triangles.spans
