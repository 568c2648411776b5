"""The completions of one update: which lengths share a prompt, and random tokens of that form."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.shared.materials import VOCABULARY, token_lists


@dataclass(frozen=True)
class Batch:
    """Prompts of one length, and groups of completions of any."""

    prompt: int
    """Tokens of every prompt."""
    group: int
    """Completions that share a prompt."""
    lengths: tuple[int, ...]
    """Tokens of all completions, prompt after prompt."""

    @property
    def tokens(self) -> int:
        """Tokens with every prompt once, as a learner computes that shares prompts."""
        return len(self.lengths) // self.group * self.prompt + sum(self.lengths)

    @property
    def separate_tokens(self) -> int:
        """Tokens with every completion after its own copy of the prompt."""
        return len(self.lengths) * self.prompt + sum(self.lengths)

    def padded_tokens(self, rows: int) -> int:
        """Count the computed places if completions, in their order, are padded to the longest of each `rows`."""
        cuts = [self.lengths[at : at + rows] for at in range(0, len(self.lengths), rows)]
        return sum(len(cut) * (self.prompt + max(cut)) for cut in cuts)

    def ids(self, vocabulary: int = VOCABULARY) -> tuple[list[list[int]], list[list[list[int]]]]:
        """Return prompts, [prompts], and their completions, [prompts][group], as token ids below `vocabulary`."""
        prompts = token_lists(len(self.lengths) // self.group, self.prompt, seed=1, vocabulary=vocabulary)
        completions = [
            token_lists(1, length, seed=2 + place, vocabulary=vocabulary)[0]
            for place, length in enumerate(self.lengths)
        ]
        return prompts, [completions[at : at + self.group] for at in range(0, len(completions), self.group)]

    def pairs(self, vocabulary: int = VOCABULARY) -> list[tuple[list[int], list[int]]]:
        """Return the same as pairs of prompt and completion, [completions]."""
        return [(prompt, ids) for prompt, group in zip(*self.ids(vocabulary), strict=True) for ids in group]


def tail(count: int, *, shortest: int, longest: int, seed: int = 0) -> tuple[int, ...]:
    """Draw lengths from a Pareto distribution with exponent 1: half are below twice the shortest, one in ten above ten
    times of it."""
    draw = random.Random(seed)
    return tuple(min(longest, int(shortest * draw.paretovariate(1.0))) for _ in range(count))


def alternating(completions: int) -> Sequence[float]:
    """Return an advantage of each completion, [completions]; their sum is zero if the number of completions is even."""
    return [place % 2 - 0.5 for place in range(completions)]
