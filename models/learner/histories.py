"""Tries of sequences that share histories at any depth: branches of an episode, or turns that are separate samples.

    prompt - turn 1 - reply - turn 2 a          every token of the trie once, in depth-first order
                            \\ turn 2 b - ...

A causal model's state at a token depends only on the tokens before it. So a history that several sequences begin with
is read once, whether it is the prompt of all of them, or was written in one and is read in another. The layout defines
which tokens may see which: a node of the trie is a span, and a node that branches is a prefix of all nodes after it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise

from models.learner.layout import Prefix, Span

Whole = tuple[int, ...]
"""Prompt and completion of a sequence as token ids, [tokens]."""


def families(prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Group prompts into families, each a prompt and those that begin with it, as indices, [families][members].

    Prompts that only share a beginning, as all of a data set may, are not a family: they would make one tree of
    everything.
    """
    ordered = sorted(range(len(prompts)), key=lambda index: (tuple(prompts[index]), index))
    made: list[list[int]] = []
    root: Whole | None = None
    for index in ordered:
        prompt = tuple(prompts[index])
        if not root or prompt[: len(root)] != root:
            root = prompt
            made.append([])
        made[-1].append(index)
    return sorted(map(sorted, made))


def joined(groups: Sequence[Sequence[int]], together: Sequence[Hashable]) -> list[list[int]]:
    """Merge groups of indices that have a label in common, [groups][members], sorted by their first index.

    Args:
        groups: disjoint.
        together: a label of each index.
    """
    made: list[tuple[set[Hashable], list[int]]] = []
    for members in groups:
        labels, held = {together[index] for index in members}, list(members)
        for other in [other for other in made if other[0] & labels]:
            made.remove(other)
            labels, held = other[0] | labels, other[1] + held
        made.append((labels, held))
    return sorted(sorted(held) for _, held in made)


def laid_tokens(prompts: Sequence[Sequence[int]], wholes: Sequence[Whole]) -> int:
    """Count the tokens of sequences stored as tries, one trie per family of `prompts`."""
    return sum(unique_tokens([wholes[index] for index in members]) for members in families(prompts))


@dataclass
class Trie:
    """Tokens, spans and prefixes of a packed row, to which tries of sequences are appended one after the other."""

    ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    prefixes: list[Prefix] = field(default_factory=list)

    def lay(self, wholes: Sequence[Whole]) -> list[list[int]]:
        """Append the trie of sequences that share a beginning, and return the place of each token in the row.

        Returns:
            Places, [sequences] lists of [tokens of it].
        """
        places: list[list[int]] = [[] for _ in wholes]
        self._node(wholes, list(range(len(wholes))), 0, places)
        return places

    def _node(self, wholes: Sequence[Whole], members: list[int], depth: int, places: list[list[int]]) -> None:
        """Lay out the node that begins after `depth` tokens, which `members` share, and all nodes after it."""
        start, end, going = len(self.ids), depth, members
        while True:
            going = [member for member in going if len(wholes[member]) > end]
            following = {wholes[member][end] for member in going}
            if len(following) != 1:
                break
            self.ids.append(following.pop())
            self.positions.append(end)
            for member in going:
                places[member].append(len(self.ids) - 1)
            end += 1
        self.spans.append(Span(start, end - depth))
        if not going:
            return
        number, first = len(self.prefixes), len(self.ids)
        self.prefixes.append(Prefix(start, first, first, first))  # takes its place before those that it holds
        branches: dict[int, list[int]] = {}
        for member in going:
            branches.setdefault(wholes[member][end], []).append(member)
        for branch in branches.values():
            self._node(wholes, branch, end, places)
        self.prefixes[number] = Prefix(start, first, first, len(self.ids))


def unique_tokens(wholes: Sequence[Whole]) -> int:
    """Count the tokens of sequences stored as one trie, in which a shared beginning counts once."""
    return sum(len(whole) - shared for whole, shared in _sorted(wholes))


def attended_pairs(wholes: Sequence[Whole]) -> int:
    """Count the pairs of tokens that attend to one another in the trie of sequences."""
    return sum(len(whole) * (len(whole) + 1) // 2 - shared * (shared + 1) // 2 for whole, shared in _sorted(wholes))


def _sorted(wholes: Sequence[Whole]) -> list[tuple[Whole, int]]:
    """Sort sequences by their tokens, each with the number of tokens that it shares with the one before it."""
    ordered = sorted(wholes)
    return [(whole, _shared(before, whole)) for before, whole in pairwise(chain([()], ordered))]


def _shared(first: Whole, other: Whole) -> int:
    most = min(len(first), len(other))
    return next((place for place in range(most) if first[place] != other[place]), most)


def cut_family(
    prompts: Sequence[Sequence[int]], wholes: Sequence[Whole], units: Sequence[Sequence[int]], budget: int
) -> list[list[int]]:
    """Cut a family into tries of at most `budget` tokens without splitting a unit, as indices, [tries][members].

    Neighbours of the trie stay together: units follow one another depth first, and a trie is filled before the next
    one begins with the path to the end of the last one.

    Args:
        prompts: prompt of each sequence.
        wholes: sequences of the family, or of families that a unit joins.
        units: indices of those that stay together; no unit alone is larger than the budget.
        budget: largest number of tokens of a trie.
    """
    ordered = sorted(units, key=lambda unit: min((wholes[member], member) for member in unit))
    cut: list[list[int]] = []
    for unit in ordered:
        both = [*cut[-1], *unit] if cut else list(unit)
        if cut and laid_tokens([prompts[i] for i in both], [wholes[i] for i in both]) <= budget:
            cut[-1] = both
        else:
            cut.append(list(unit))
    return cut
