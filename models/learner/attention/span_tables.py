"""Index tables for the attention over a packed row on a GPU, computed once per row.

Two routes compute the same sums (`models.learner.attention.span_attention`). By spans, each span's keys are gathered:
those of the prompts that it continues, then its own. By rectangles, long spans attend to themselves, and all
continuations of one prompt attend to it together.

A cuDNN kernel is built for each new shape. So the lengths of rectangles are rounded to few values: the tokens of a
prompt beyond such a length are read along with each of its spans, and spans are padded after their end, which none of
their queries sees.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from models.learner.layout import Layout
from models.learner.upload import to_device

LEAST_SPAN = 4096
"""Tokens of a span, on average, from which a row is read by rectangles. With shorter ones the host's calls cost as much
as the kernel saves (Qwen3-0.6B on an H200: as fast either way with nine spans in 16,384 tokens)."""
STEPS = 16
"""Lengths between a power of two and the next that rectangles have."""
LEAST_STEP = 128


class RowTables:
    """The index tables of one packed row. Torch's compiler takes the attributes of this class unchanged."""

    def __init__(self, layout: Layout, by_spans: list[Tensor] | None, by_rectangles: list[Tensor] | None) -> None:
        """Keep the layout and both routes' tables; None: the route is not for this row."""
        self.layout, self.by_spans, self.by_rectangles = layout, by_spans, by_rectangles
        self.longest = layout.longest


@lru_cache(maxsize=8)
def tables_of(layout: Layout, device: torch.device) -> RowTables:
    """Build the index tables of a row; on a device without the kernels, the tables of both routes are None."""
    if device.type != "cuda" or not torch.backends.cuda.is_flash_attention_available():
        return RowTables(layout, None, None)
    spans = [
        to_device(table, device) if number < ON_DEVICE else table for number, table in enumerate(span_tables(layout))
    ]
    rectangles = suits_rectangles(layout) and has_fast_rectangles(device)
    return RowTables(layout, spans, rectangle_tables(layout) if rectangles else None)


def has_fast_rectangles(device: torch.device) -> bool:
    """Return whether cuDNN's attention is available and faster, which is the case from Hopper GPUs on.

    In torch's deterministic mode it is not used, because its gradients differ from run to run.
    """
    return (
        torch.cuda.get_device_capability(device) >= (9, 0)
        and torch.backends.cudnn.is_available()
        and not torch.are_deterministic_algorithms_enabled()
    )


ON_DEVICE = 5
"""Tables of `span_tables` that the device reads; the last one is read by the host."""


def span_tables(layout: Layout) -> list[Tensor]:
    """Build the tables of the route by spans.

    Returns:
        query_ends, key_ends: end of each span's queries and keys, after a zero, [spans + 1], int32.
        gathered: place in the row of every key, span after span, [keys]; empty if that is the row itself.
        copies: places among them of each token's key, token after token, [keys].
        first: where the copies of each token begin in `copies`, [tokens].
        longest: most queries and most keys of a span, [2], on the CPU.
    """
    places, queries, keys = [], [0], [0]
    for span, path, before in zip(layout.spans, layout.paths, layout.before, strict=True):
        places += [torch.arange(prefix.start, prefix.end) for prefix in path]
        places.append(torch.arange(span.start, span.start + span.length))
        queries.append(queries[-1] + span.length)
        keys.append(keys[-1] + before + span.length)
    gathered = torch.cat(places)
    count = torch.bincount(gathered, minlength=layout.tokens)
    alone = layout.prefixes == ()
    return [
        torch.tensor(queries, dtype=torch.int32),
        torch.tensor(keys, dtype=torch.int32),
        torch.empty(0, dtype=torch.int64) if alone else gathered,
        gathered.argsort(stable=True),
        count.cumsum(0) - count,
        torch.tensor([max(span.length for span in layout.spans), layout.longest]),
    ]


def suits_rectangles(layout: Layout) -> bool:
    """Return whether a row suits the route by rectangles: long spans on average, and no nested prompts."""
    nested = any(len(path) > 1 for path in layout.paths)
    return not nested and layout.tokens >= LEAST_SPAN * len(layout.spans)


def rectangle_tables(layout: Layout) -> list[Tensor]:
    """Build the tables of the route by rectangles, on the CPU.

    Returns:
        triangles: start and end of each span, and start and end of the keys of its prompt that it reads along,
            [spans, 4].
        prompts: start and end of the other keys of each prompt, first and last token of its continuations,
            [prompts, 4].
    """
    kept = {prefix: prefix.start + rounded_down(prefix.end - prefix.start) for prefix in layout.prefixes}
    triangles = [
        [span.start, span.start + span.length, *((kept[path[0]], path[0].end) if path else (span.start, span.start))]
        for span, path in zip(layout.spans, layout.paths, strict=True)
    ]
    prompts = [[p.start, end, p.first, p.stop] for p, end in kept.items() if end > p.start]
    return [torch.tensor(triangles), torch.tensor(prompts, dtype=torch.int64).view(-1, 4)]


def step_of(tokens: int) -> int:
    """Return the distance between two neighbouring lengths of rectangles near `tokens`."""
    return max(LEAST_STEP, (1 << max(0, tokens.bit_length() - 1)) // STEPS)


def rounded_down(tokens: int) -> int:
    """Round a length down to the next length of a rectangle."""
    return tokens // step_of(tokens) * step_of(tokens)


def rounded_up(tokens: int) -> int:
    """Round a length up to the next length of a rectangle."""
    return -(-tokens // step_of(tokens)) * step_of(tokens)
