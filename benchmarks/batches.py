"""The completions of one update: how many of which lengths share a prompt, and random tokens of that form."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.materials import VOCABULARY, token_lists


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
        """With every prompt once: what a learner that shares them computes."""
        return len(self.lengths) // self.group * self.prompt + sum(self.lengths)

    @property
    def separate_tokens(self) -> int:
        """With every completion behind its own copy of the prompt, and nothing else."""
        return len(self.lengths) * self.prompt + sum(self.lengths)

    def padded_tokens(self, rows: int) -> int:
        """Places that are computed where completions, in their order, are padded to the longest of each `rows`."""
        cuts = [self.lengths[at : at + rows] for at in range(0, len(self.lengths), rows)]
        return sum(len(cut) * (self.prompt + max(cut)) for cut in cuts)

    def ids(self, vocabulary: int = VOCABULARY) -> tuple[list[list[int]], list[list[list[int]]]]:
        """Prompts, [prompts], and their completions, [prompts][group], as token ids below `vocabulary`."""
        prompts = token_lists(len(self.lengths) // self.group, self.prompt, seed=1, vocabulary=vocabulary)
        completions = [
            token_lists(1, length, seed=2 + place, vocabulary=vocabulary)[0]
            for place, length in enumerate(self.lengths)
        ]
        return prompts, [completions[at : at + self.group] for at in range(0, len(completions), self.group)]

    def pairs(self, vocabulary: int = VOCABULARY) -> list[tuple[list[int], list[int]]]:
        """The same, each completion beside its prompt, [completions]."""
        return [(prompt, ids) for prompt, group in zip(*self.ids(vocabulary), strict=True) for ids in group]


def tail(count: int, *, shortest: int, longest: int, seed: int = 0) -> tuple[int, ...]:
    """Lengths from a Pareto distribution with exponent 1: half are below twice the shortest, one in ten above ten
    times of it."""
    draw = random.Random(seed)
    return tuple(min(longest, int(shortest * draw.paretovariate(1.0))) for _ in range(count))


def alternating(completions: int) -> Sequence[float]:
    """An advantage of each completion whose sum is nothing where they are even in number, [completions]."""
    return [place % 2 - 0.5 for place in range(completions)]
