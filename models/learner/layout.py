"""The layout of a packed row, which defines what each token may attend to: causal spans, and shared prompts.

prompt | completion 1 | completion 2 | another sequence
span 0   span 1         span 2         span 3             each causal in itself
prefix: the tokens of span 1 and 2 also see all of span 0

A span that continues a prompt may itself be the prompt of later spans: prefixes are then nested.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate

import torch
from torch import Tensor


@dataclass(frozen=True)
class Span:
    """Adjacent tokens of a row that follow one another in the same sequence."""

    start: int
    length: int


@dataclass(frozen=True)
class Prefix:
    """A shared prompt, stored once, and the part of the row that continues it, directly or through another prefix."""

    start: int
    end: int
    first: int
    """Start of the completions."""
    stop: int
    """End of the completions, exclusive."""


@dataclass(frozen=True, eq=False)
class Layout:
    """The spans and prefixes of one packed row. Compared by identity, so that derived values can be cached with it."""

    spans: tuple[Span, ...]
    prefixes: tuple[Prefix, ...]
    tokens: int

    @classmethod
    def of_sequences(cls, lengths: Sequence[int]) -> Layout:
        """Build the layout of a row of sequences that share nothing. `lengths`: tokens of each, [sequences]."""
        ends = list(accumulate(lengths))
        return cls(tuple(Span(end - length, length) for end, length in zip(ends, lengths, strict=True)), (), ends[-1])

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence, its prompt included."""
        return max(int(end) for end in self.ends)

    @property
    def ends(self) -> list[int]:
        """Tokens of each span's sequence up to the span's end, its prompt included, [spans]."""
        return [before + span.length for span, before in zip(self.spans, self.before, strict=True)]

    @property
    def before(self) -> list[int]:
        """Number of tokens that precede each span in its sequence, [spans]."""
        return [sum(prefix.end - prefix.start for prefix in path) for path in self.paths]

    @cached_property
    def paths(self) -> list[list[Prefix]]:
        """The prefixes that each span continues, one after the other, [spans] lists; none for a span on its own."""
        return [[p for p in self.prefixes if p.first <= span.start < p.stop] for span in self.spans]


@lru_cache(maxsize=2)  # with and without the window of the layers that have one
def allowed(layout: Layout, device: torch.device, window: int | None) -> Tensor:
    """Build the attention mask of a layout: whether token i may attend to token j, [tokens, tokens], bool.

    Args:
        window: a token sees this many tokens at most, itself included; None for all before it.
    """
    span = torch.empty(layout.tokens, dtype=torch.int64)
    position = torch.empty(layout.tokens, dtype=torch.int32)
    numbers = {s.start: number for number, s in enumerate(layout.spans)}
    sees = torch.eye(len(layout.spans), dtype=torch.bool)
    for number, (s, path, before) in enumerate(zip(layout.spans, layout.paths, layout.before, strict=True)):
        inside = slice(s.start, s.start + s.length)
        span[inside] = number
        position[inside] = torch.arange(before, before + s.length)
        sees[number, [numbers[prefix.start] for prefix in path]] = True
    seen = sees[span][:, span]
    distance = position[:, None] - position[None, :]
    seen &= distance >= 0
    if window is not None:
        seen &= distance < window
    return seen.to(device)
