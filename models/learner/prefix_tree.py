"""Completions of one prompt as a tree: what several of them begin with is read once, not once for each.

    prompt - the answer is 4                   a token of the tree stands for every completion that goes through it:
                         \\ 5                   what it sees is its prompt and the tokens above it, in all of them
           - so 4

Samples of a policy that knows what it wants begin alike, and many are alike to the end. A causal model's state at a
token depends on what stands before it and on nothing else: reading a shared beginning once is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from models.learner.packing import Sequences, by_prompt

STEP = 8
"""Trees are filled up to a multiple of this many tokens, so that many have one size and are attended to in one call."""


@dataclass(frozen=True)
class Tree:
    """A prompt and its completions, in preorder: a token's subtree follows it without a gap."""

    ids: tuple[int, ...]
    """[tokens]"""
    positions: tuple[int, ...]
    """Place of each token in its sequences, from 0, [tokens]."""
    until: tuple[int, ...]
    """Where each token's subtree ends: token i sees token j exactly if j <= i < until[j], [tokens]."""
    members: tuple[int, ...]
    """The sequences that were put in, by number, [sequences]."""
    last: tuple[int, ...]
    """The token that each of them ends with, [sequences]."""


@dataclass(frozen=True)
class Stand:
    """Trees of one size, side by side in a row."""

    start: int
    trees: int
    size: int
    """Tokens of each tree, what it is filled up with included."""
    seen: Tensor
    """Which token of a tree sees which, [trees, 1, size, size], bool."""


@dataclass(frozen=True)
class Forest:
    """A row of trees, as a model reads it."""

    ids: Tensor
    """[tokens], int64."""
    positions: Tensor
    """[tokens], int64."""
    stands: tuple[Stand, ...]
    members: tuple[int, ...]
    """The sequences that the row holds, by number, [sequences]."""
    last: Tensor
    """Place in the row of the last token of each, [sequences]; of equal sequences the same one."""


def trees(sequences: Sequences) -> list[Tree]:
    """A tree for each different prompt, in order of appearance.

    Args:
        sequences: no completion is empty; equal ones end at the same token.
    """
    return [_tree(sequences, members) for members in by_prompt(sequences)]


def _tree(sequences: Sequences, members: Sequence[int]) -> Tree:
    """Completions in alphabetic order share their beginning with the one before, or with nobody."""
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
    return Tree(tuple(ids), tuple(positions), tuple(until), tuple(members), tuple(last[m] for m in members))


def forests(grown: Sequence[Tree], budget: int, device: torch.device | str = "cpu") -> list[Forest]:
    """Rows of at most `budget` tokens, or of one tree, trees of like size side by side; largest first."""
    ordered = sorted(grown, key=lambda tree: -len(tree.ids))
    rows: list[list[Tree]] = []
    room = 0
    for tree in ordered:
        size = _filled(tree)
        if not rows or room < size:
            rows.append([])
            room = budget
        rows[-1].append(tree)
        room -= size
    return [_forest(row, device) for row in rows]


def _forest(row: Sequence[Tree], device: torch.device | str) -> Forest:
    ids: list[int] = []
    positions: list[int] = []
    members: list[int] = []
    last: list[int] = []
    stands: list[Stand] = []
    for size, alike in groupby(row, key=_filled):
        start = len(ids)
        until: list[int] = []
        for tree in alike:
            members.extend(tree.members)
            last.extend(len(ids) + place for place in tree.last)
            empty = size - len(tree.ids)
            ids.extend((*tree.ids, *[0] * empty))
            positions.extend((*tree.positions, *[0] * empty))
            until.extend((*tree.until, *range(len(tree.ids) + 1, size + 1)))  # what fills a tree sees itself
        ends = torch.tensor(until, device=device).view(-1, 1, 1, size)
        places = torch.arange(size, device=device)
        seen = (places <= places[:, None]) & (places[:, None] < ends)
        stands.append(Stand(start, seen.shape[0], size, seen))
    return Forest(
        torch.tensor(ids, device=device),
        torch.tensor(positions, device=device),
        tuple(stands),
        tuple(members),
        torch.tensor(last, device=device),
    )


def _filled(tree: Tree) -> int:
    return -(-len(tree.ids) // STEP) * STEP
