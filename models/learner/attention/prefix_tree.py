"""Completions of one prompt as a tree of tokens, in which a shared beginning is stored and read once.

    prompt - the answer is 4                   a token of the tree belongs to every completion that passes through it:
                         \\ 5                   it sees its prompt and the tokens above it, in all of them
           - so 4

Samples of a confident policy share their beginnings, and many are equal to the end. A causal model's state at a token
depends only on the tokens before it: reading a shared beginning once is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from models.learner.packing import Sequences, by_prompt

STEP = 8
"""Trees are padded to a multiple of this many tokens, so that many have one size and are attended to in one call."""


@dataclass(frozen=True)
class PrefixTree:
    """A prompt and its completions as a tree of tokens in preorder: each token is followed directly by its subtree."""

    ids: tuple[int, ...]
    """Token ids, [tokens]."""
    positions: tuple[int, ...]
    """Place of each token in its sequences, from 0, [tokens]."""
    until: tuple[int, ...]
    """End of each token's subtree: token i sees token j exactly if j <= i < until[j], [tokens]."""
    members: tuple[int, ...]
    """The sequences of the tree, by number, [sequences]."""
    last: tuple[int, ...]
    """The last token of each of them, [sequences]."""


@dataclass(frozen=True)
class EqualTrees:
    """Adjacent trees of a row that have the same size after padding."""

    start: int
    trees: int
    size: int
    """Tokens of each tree, padding included."""
    seen: Tensor
    """Whether a token of a tree sees another, [trees, 1, size, size], bool."""


@dataclass(frozen=True)
class Forest:
    """A row of prefix trees, as the input of a model."""

    ids: Tensor
    """Token ids, [tokens], int64."""
    positions: Tensor
    """Place of each token in its sequences, [tokens], int64."""
    groups: tuple[EqualTrees, ...]
    members: tuple[int, ...]
    """The sequences of the row, by number, [sequences]."""
    last: Tensor
    """Place in the row of the last token of each, [sequences]; the same one for equal sequences."""


def trees(sequences: Sequences) -> list[PrefixTree]:
    """Build a tree for each different prompt, in order of appearance.

    Args:
        sequences: no completion is empty; equal ones end at the same token.
    """
    return [_tree(sequences, members) for members in by_prompt(sequences)]


def _tree(sequences: Sequences, members: Sequence[int]) -> PrefixTree:
    """Build a tree of completions sorted by their tokens: each shares its beginning with the one before or none."""
    prompt = list(sequences.prompts[members[0]])
    ids, positions, until = list(prompt), list(range(len(prompt))), [0] * len(prompt)
    path: list[int] = []  # places of the tokens of the completion before
    before: tuple[int, ...] = ()
    last: dict[int, int] = {}
    for completion, member in sorted((tuple(sequences.completions[member]), member) for member in members):
        shared = 0
        while shared < len(before) and before[shared] == completion[shared]:  # a completion follows its own beginning
            shared += 1
        for place in path[shared:]:
            until[place] = len(ids)
        path[shared:] = range(len(ids), len(ids) + len(completion) - shared)
        ids.extend(completion[shared:])
        positions.extend(range(len(prompt) + shared, len(prompt) + len(completion)))
        until.extend([0] * (len(completion) - shared))
        last[member] = path[-1]
        before = completion
    for place in [*range(len(prompt)), *path]:
        until[place] = len(ids)
    return PrefixTree(tuple(ids), tuple(positions), tuple(until), tuple(members), tuple(last[m] for m in members))


def forests(grown: Sequence[PrefixTree], budget: int, device: torch.device | str = "cpu") -> list[Forest]:
    """Arrange trees in rows of at most `budget` tokens, largest trees first; a larger tree has a row of its own."""
    ordered = sorted(grown, key=lambda tree: -len(tree.ids))
    rows: list[list[PrefixTree]] = []
    room = 0
    for tree in ordered:
        size = _filled(tree)
        if not rows or room < size:
            rows.append([])
            room = budget
        rows[-1].append(tree)
        room -= size
    return [_forest(row, device) for row in rows]


def _forest(row: Sequence[PrefixTree], device: torch.device | str) -> Forest:
    ids: list[int] = []
    positions: list[int] = []
    members: list[int] = []
    last: list[int] = []
    groups: list[EqualTrees] = []
    for size, alike in groupby(row, key=_filled):
        start = len(ids)
        until: list[int] = []
        for tree in alike:
            members.extend(tree.members)
            last.extend(len(ids) + place for place in tree.last)
            empty = size - len(tree.ids)
            ids.extend((*tree.ids, *[0] * empty))
            positions.extend((*tree.positions, *[0] * empty))
            until.extend((*tree.until, *range(len(tree.ids) + 1, size + 1)))  # padding sees itself
        ends = torch.tensor(until, device=device).view(-1, 1, 1, size)
        places = torch.arange(size, device=device)
        seen = (places <= places[:, None]) & (places[:, None] < ends)
        groups.append(EqualTrees(start, seen.shape[0], size, seen))
    return Forest(
        torch.tensor(ids, device=device),
        torch.tensor(positions, device=device),
        tuple(groups),
        tuple(members),
        torch.tensor(last, device=device),
    )


def _filled(tree: PrefixTree) -> int:
    return -(-len(tree.ids) // STEP) * STEP
