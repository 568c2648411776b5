"""A packed row as rectangles of queries and keys, for attention kernels that need batch entries of equal length.

Spans of nearly one length are one rectangle, spans x heads of equal causal triangles. If a prompt is short relative to
its continuations, its keys are read along: each span gets a copy, and one kernel call sees all. If it is long, or is
one of several prompts that a span continues, the spans and their prompt are two rectangles (`PromptRectangle`), whose
results are merged.

All of it is numbers of rows in [tokens * heads, size], so that one gather collects a rectangle's entries, heads first,
and one gather puts the results back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from models.learner.layout import Layout, Prefix, Span
from models.learner.upload import to_device

CALL = 2**16
"""Scores that cost about as much to compute as one more call of the kernel, forward and backward, on a CPU."""
ALONG = 0.5
"""Longest prompt that is read along, as a multiple of the mean length of its continuations."""


@dataclass(frozen=True)
class Triangles:
    """Spans of nearly one length, each with causal attention to itself, and to its prompt if that is read along."""

    queries: Tensor
    """Rows of [tokens * heads], [spans * heads * longest]; a shorter span's last token is repeated, which no earlier
    token sees."""
    keys: Tensor
    """Rows of [tokens * key heads], [spans * heads * (before + longest)]."""
    spans: int
    before: int
    """Tokens of the prompt that is read along; 0 if none is."""
    prompt: slice
    """Place of the prompt in the row; empty if none is read along."""
    real: Tensor | None
    """Whether each query is a token, [spans * heads * longest], bool; None if all are."""


@dataclass(frozen=True)
class PromptRectangle:
    """The tokens that continue a prompt, and the prompt, to which each of them attends as a whole."""

    queries: Tensor
    """Rows of [tokens * heads], [key heads * (heads / key heads) * continuing tokens]."""
    keys: Tensor
    """Rows of [tokens * key heads], [key heads * prompt's tokens]."""
    places: Tensor
    """Place of each row of `inside` among `queries`, [continuing tokens * heads]."""
    inside: slice
    """The continuing tokens, as rows of [tokens * heads]."""
    prompt: slice
    """Place of the prompt in the row."""


@dataclass(frozen=True)
class Rectangles:
    """The rectangles of one packed row, for a number of heads."""

    triangles: tuple[Triangles, ...]
    apart: tuple[PromptRectangle, ...]
    queries: Tensor
    """Place of each row of [tokens * heads] among the queries of all triangles, one after another."""
    keys: Tensor
    """Place of each row of [tokens * key heads] among the keys of all triangles, heads that share a key counted once:
    the token's own place, not that of a prompt's copy."""


@lru_cache(maxsize=4)
def rectangles(layout: Layout, heads: int, key_heads: int, device: torch.device) -> Rectangles:
    """Build the rectangles of a packed row; the spans of one prompt are sorted by length, the longest first."""
    along, apart = _prompts(layout)
    triangles: list[Triangles] = []
    queries = torch.empty(layout.tokens * heads, dtype=torch.int64)
    keys = torch.empty(layout.tokens * key_heads, dtype=torch.int64)
    query_rows = key_rows = 0
    for prefix, spans in _alike(layout, along, heads):
        before = 0 if prefix is None else prefix.end - prefix.start
        start = 0 if prefix is None else prefix.start
        starts = torch.tensor([span.start for span in spans])[:, None]
        lengths = torch.tensor([span.length for span in spans])[:, None]
        offsets = torch.arange(int(lengths.max()))[None, :]
        own = starts + torch.minimum(offsets, lengths - 1)
        seen = torch.cat([torch.arange(start, start + before).expand(len(spans), before), own], dim=1)
        real = offsets < lengths
        rows = _rows(own, heads, heads)
        copies = _rows(seen, heads, key_heads)
        tokens = real[:, None, :].expand(rows.shape)
        queries[rows[tokens]] = query_rows + torch.arange(rows.numel()).view(rows.shape)[tokens]
        once = _rows(seen, key_heads, key_heads)
        numbers = key_rows + torch.arange(once.numel()).view(once.shape)
        tokens_once = real[:, None, :].expand(-1, key_heads, -1)
        keys[once[:, :, before:][tokens_once]] = numbers[:, :, before:][tokens_once]
        query_rows, key_rows = query_rows + rows.numel(), key_rows + once.numel()
        triangles.append(
            Triangles(
                to_device(rows.flatten(), device),
                to_device(copies.flatten(), device),
                len(spans),
                before,
                slice(start, start + before),
                None if bool(real.all()) else to_device(tokens.flatten(), device),
            )
        )
    return Rectangles(
        tuple(triangles),
        tuple(_apart(prefix, heads, key_heads, device) for prefix in apart),
        to_device(queries, device),
        to_device(keys, device),
    )


def _rows(places: Tensor, heads: int, of: int) -> Tensor:
    """Return rows of [tokens * of] for places, [spans, tokens] -> [spans, heads, tokens]; `heads` share `of`."""
    return places[:, None, :] * of + (torch.arange(heads) * of // heads)[None, :, None]


def _apart(prefix: Prefix, heads: int, key_heads: int, device: torch.device) -> PromptRectangle:
    inside = torch.arange(prefix.first, prefix.stop)[None]
    prompt = torch.arange(prefix.start, prefix.end)[None]
    queries, keys = _rows(inside, heads, heads).flatten(), _rows(prompt, key_heads, key_heads).flatten()
    return PromptRectangle(
        to_device(queries, device),
        to_device(keys, device),
        to_device(queries.argsort(), device),
        slice(prefix.first * heads, prefix.stop * heads),
        slice(prefix.start, prefix.end),
    )


def _prompts(layout: Layout) -> tuple[dict[Span, Prefix], list[Prefix]]:
    """Return the prompt that is read along with each span that has one, and the prompts in rectangles of their own."""
    along: dict[Span, Prefix] = {}
    apart = []
    paths = dict(zip(layout.spans, layout.paths, strict=True))
    for prefix in layout.prefixes:
        inside = [span for span in layout.spans if prefix.first <= span.start < prefix.stop]
        short = prefix.end - prefix.start <= ALONG * (prefix.stop - prefix.first) / len(inside)
        if short and all(paths[span] == [prefix] for span in inside):
            along.update(dict.fromkeys(inside, prefix))
        else:
            apart.append(prefix)
    return along, apart


def _alike(layout: Layout, along: dict[Span, Prefix], heads: int) -> Iterator[tuple[Prefix | None, Sequence[Span]]]:
    """Iterate over groups of spans that form one rectangle each.

    They belong to one prompt, if it is read along, and are so nearly of one length that padding the shorter ones costs
    less than another call.
    """
    by_prompt: dict[Prefix | None, list[Span]] = defaultdict(list)
    for span in layout.spans:
        by_prompt[along.get(span)].append(span)
    for prefix, spans in by_prompt.items():
        before = 0 if prefix is None else prefix.end - prefix.start
        together: list[Span] = []
        filled = 0
        for span in sorted(spans, key=lambda span: -span.length):
            most = together[0].length if together else span.length
            filled += heads * ((most - span.length) * before + (most**2 - span.length**2) // 2)
            if filled > CALL:
                yield prefix, together
                together, filled = [], 0
            together.append(span)
        yield prefix, together
