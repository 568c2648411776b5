"""Packing of ragged sequences into rows: no padding, and a prompt is stored once for all of its completions.

A row of one prompt and its completions is laid out `prompt, completion 1, ..., completion G`: P + sum of C tokens
instead of the G * P + sum of C of separate rows. Several prompts follow one another in the same row. The layout defines
what each token may attend to; the loss of a batch depends neither on the rows nor on their order.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from models.base.errors import UserError
from models.learner.histories import Trie, attended_pairs, cut_family, families, joined, laid_tokens
from models.learner.layout import Layout, Prefix, Span
from models.learner.upload import all_to_device

PerToken = Sequence[Tensor]
"""One value for each completion token: [completions] tensors of [tokens of it]."""


@dataclass(frozen=True)
class Sequences:
    """Prompts and their completions as token ids, [completions] lists each; no completion is empty."""

    prompts: Sequence[Sequence[int]]
    completions: Sequence[Sequence[int]]
    nested: bool = False
    """Whether prompts may contain tokens of other sequences: histories are then shared at any depth, and not only equal
    prompts (`models.learner.histories`). Memory and time only."""
    weights: Sequence[Sequence[float]] | None = None
    """Weight of each completion token in supervised fine-tuning, [completions] lists of [tokens of it]; zero: it is
    read and not trained on. None: all equal."""

    def __len__(self) -> int:
        return len(self.prompts)

    @property
    def lengths(self) -> list[int]:
        """Tokens of prompt and completion together, [completions]."""
        return [
            len(prompt) + len(completion) for prompt, completion in zip(self.prompts, self.completions, strict=True)
        ]

    def take(self, indices: Sequence[int]) -> Sequences:
        """Return the sequences at `indices`, in that order."""
        weights = None if self.weights is None else [self.weights[i] for i in indices]
        prompts, completions = [self.prompts[i] for i in indices], [self.completions[i] for i in indices]
        return Sequences(prompts, completions, self.nested, weights)

    def once_each(self) -> tuple[Sequences, list[int]]:
        """Return the distinct sequences, without weights, and the index of each sequence among them."""
        numbers: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        pairs = zip(self.prompts, self.completions, strict=True)
        which = [numbers.setdefault((tuple(prompt), tuple(completion)), len(numbers)) for prompt, completion in pairs]
        prompts, completions = [prompt for prompt, _ in numbers], [completion for _, completion in numbers]
        return Sequences(prompts, completions, self.nested), which

    def whole(self, index: int) -> tuple[int, ...]:
        """Return the tokens of prompt and completion together, [tokens]."""
        return (*self.prompts[index], *self.completions[index])


@dataclass(frozen=True)
class PackedRow:
    """One packed row of tokens, as the input of a model."""

    ids: Tensor
    """Token ids, [tokens], int64."""
    positions: Tensor
    """Place of each token in its own sequence, from 0, [tokens], int64."""
    layout: Layout
    predicting: Tensor
    """Place in the row of the token that predicts each completion token, completion after completion, [targets].

    Nothing predicts the first token of a completion whose prompt is empty: its entry has no meaning.
    """
    targets: Tensor
    """The completion tokens, in the same order, [targets], int64."""
    last: Tensor
    """Place in the row of each completion's last token, [completions]."""


def packed_row(sequences: Sequences, device: torch.device | str = "cpu") -> PackedRow:
    """Pack `sequences` into one row on `device`; equal prompts, or all shared tokens of nested ones, occur once.

    Raises:
        ValueError: a completion is empty.
    """
    if sequences.nested:
        return _nested_row(sequences, device)
    ids: list[int] = []
    positions: list[int] = []
    spans: list[Span] = []
    prefixes: list[Prefix] = []
    starts = [0] * len(sequences)
    prompt_ends = [0] * len(sequences)

    def lay(tokens: Sequence[int], first_position: int) -> int:
        start = len(ids)
        ids.extend(tokens)
        positions.extend(range(first_position, first_position + len(tokens)))
        return start

    for members in by_prompt(sequences):
        prompt = sequences.prompts[members[0]]
        if any(not len(sequences.completions[i]) for i in members):
            raise ValueError("a completion is empty")
        start = lay(prompt, 0)
        end = len(ids)
        for member in members:
            starts[member] = lay(sequences.completions[member], len(prompt))
            prompt_ends[member] = max(end - 1, 0)
        if len(members) == 1:
            spans.append(Span(start, len(ids) - start))
            continue
        spans.append(Span(start, len(prompt)))
        spans.extend(Span(starts[member], len(sequences.completions[member])) for member in members)
        prefixes.append(Prefix(start, end, end, len(ids)))
    lengths = torch.tensor([len(completion) for completion in sequences.completions])
    begins = torch.tensor(starts)
    # The token before a completion's first is its prompt's last, which need not be adjacent in the row.
    places = torch.repeat_interleave(begins - (lengths.cumsum(0) - lengths), lengths) + torch.arange(int(lengths.sum()))
    predicting = places - 1
    predicting[lengths.cumsum(0) - lengths] = torch.tensor(prompt_ends)
    layout = Layout(tuple(spans), tuple(prefixes), len(ids))
    return _row_on(device, ids, positions, layout, predicting, places, begins + lengths - 1)


def _nested_row(sequences: Sequences, device: torch.device | str) -> PackedRow:
    """Build a row of tries."""
    if not all(map(len, sequences.completions)):
        raise ValueError("a completion is empty")
    trie = Trie()
    places: list[list[int]] = [[] for _ in range(len(sequences))]
    for members in families(sequences.prompts):
        for member, of_member in zip(members, trie.lay([sequences.whole(i) for i in members]), strict=True):
            places[member] = of_member
    starts = [len(prompt) for prompt in sequences.prompts]
    predicting = [
        place
        for begin, row in zip(starts, places, strict=True)
        for place in (row[begin - 1 : -1] if begin else [0, *row[:-1]])
    ]
    written = torch.tensor([place for begin, of in zip(starts, places, strict=True) for place in of[begin:]])
    layout = Layout(tuple(trie.spans), tuple(trie.prefixes), len(trie.ids))
    last = torch.tensor([of[-1] for of in places])
    return _row_on(device, trie.ids, trie.positions, layout, torch.tensor(predicting), written, last)


def _row_on(
    device: torch.device | str,
    ids: Sequence[int],
    positions: Sequence[int],
    layout: Layout,
    predicting: Tensor,
    written: Tensor,
    last: Tensor,
) -> PackedRow:
    """Copy a row to `device` at once.

    Args:
        written: place in the row of each completion token, [targets]; the others are those of the row.
    """
    row = torch.tensor(ids)
    parts = [row, torch.tensor(positions), predicting, row[written], last]
    row, where, predicting, targets, last = all_to_device(parts, torch.device(device))
    return PackedRow(row, where, layout, predicting, targets, last)


def by_prompt(sequences: Sequences) -> list[list[int]]:
    """Group the indices of completions by prompt, in order of appearance; each empty prompt has its own group."""
    members: dict[tuple[int, ...], list[int]] = {}
    for index, prompt in enumerate(sequences.prompts):
        members.setdefault(tuple(prompt) or (-1 - index,), []).append(index)  # an empty prompt has nothing to share
    return list(members.values())


@dataclass(frozen=True)
class Bundle:
    """Completions of one prompt that are put into the same row."""

    members: tuple[int, ...]
    tokens: int
    """Number of their tokens, the prompt counted once."""
    pairs: int
    """Number of pairs of tokens that attend to one another."""

    def cost(self, width: int) -> float:
        """Return the cost of the bundle in tokens: a layer costs 24 width^2 per token, 4 width per pair."""
        return self.tokens + self.pairs / (6.0 * width)


def cut_into_rows(
    sequences: Sequences,
    budget: int,
    *,
    width: int,
    among: Sequence[int] | None = None,
    together: Sequence[Hashable] | None = None,
    setting: str = "token_budget",
) -> Iterator[tuple[list[int], Sequences]]:
    """Iterate over the rows of `pack`: the indices of a row's completions in `sequences`, and these completions.

    Args:
        sequences: the sequences to read, [completions].
        budget: largest number of tokens of a row.
        width: hidden width of the model.
        among: indices of the completions to read; None: all of them.
        together: a label of each completion, [completions]; those with the same label, and of plain sequences the
            same prompt, are never split.
        setting: key of the budget in the recipe, for the error.

    Raises:
        UserError: the budget is smaller than one row must be; before the first row.
    """
    chosen = range(len(sequences)) if among is None else among
    labels = None if together is None else [together[index] for index in chosen]
    for row in pack(sequences.take(chosen), budget, width=width, together=labels, setting=setting):
        indices = [chosen[position] for position in row]
        yield indices, sequences.take(indices)


def pack(
    sequences: Sequences,
    budget: int,
    *,
    width: int,
    together: Sequence[Hashable] | None = None,
    setting: str = "token_budget",
) -> list[list[int]]:
    """Cut indices `0..len(sequences)` into rows of at most `budget` tokens, completions of one prompt together.

    First-fit-decreasing: bundles (a prompt with its completions) by falling cost, each into the first row with room. A
    bundle larger than the budget is split and its prompt repeated. The cut is deterministic.

    Args:
        sequences: the sequences to pack.
        budget: largest number of tokens of a row; bounds memory and does not change the result.
        width: hidden width of the model, for the cost of attention relative to the rest.
        together: a label of each completion, [completions]; those with the same label, and of plain sequences the
            same prompt, are never split.
        setting: key of the budget in the recipe, for the error.

    Raises:
        UserError: the budget is smaller than one row must be.
    """
    (rows,) = pack_shares(sequences, budget, 1, width=width, together=together, setting=setting)
    return rows


def pack_shares(
    sequences: Sequences,
    budget: int,
    shares: int,
    *,
    width: int,
    together: Sequence[Hashable] | None = None,
    setting: str = "token_budget",
    filled: int | None = None,
) -> list[list[list[int]]]:
    """Pack sequences for several readers that work at the same time, [shares][rows][completions of a row] indices.

    Bundles are dealt out by their cost, and each share packed by itself; one may have no row. A bundle that is larger
    than a share is split too.

    Args:
        shares: number of readers; see `pack` for the other arguments.
        filled: tokens from which on a row gets no further bundle, though the budget would allow it; None: the budget.

    Raises:
        UserError: the budget is smaller than one row must be.
    """
    groups = families(sequences.prompts) if sequences.nested else by_prompt(sequences)
    if sequences.nested and together is not None:
        groups = joined(groups, together)
    largest = budget
    if shares > 1 and groups:
        prompts = [len(sequences.prompts[members[0]]) for members in groups]
        mean = (sum(prompts) + sum(map(len, sequences.completions))) // shares
        largest = min(budget, max(mean + max(prompts), longest_unit(sequences, together)))
    cut = _nested_bundles if sequences.nested else _bundles
    bundles = [bundle for members in groups for bundle in cut(sequences, members, largest, together, setting)]
    bundles.sort(key=lambda bundle: (-bundle.cost(width), bundle.members))
    packed = []
    for share in balanced_shares([bundle.cost(width) for bundle in bundles], shares):
        mine = [bundles[place] for place in share]
        rows = _first_fit([bundle.tokens for bundle in mine], min(budget, filled or budget))
        packed.append([[index for position in row for index in mine[position].members] for row in rows])
    return packed


def balanced_shares(costs: Sequence[float], shares: int) -> list[list[int]]:
    """Assign items of falling `costs` to shares, each to the share of least cost so far, [shares][places of items].

    No share has more than the mean and the first cost (Graham 1969): none is 1.15 times the mean if nothing costs more
    than a seventh of it.
    """
    dealt: list[list[int]] = [[] for _ in range(shares)]
    loads = [0.0] * shares
    for place, cost in enumerate(costs):
        least = loads.index(min(loads))
        dealt[least].append(place)
        loads[least] += cost
    return dealt


def longest_unit(sequences: Sequences, together: Sequence[Hashable] | None = None) -> int:
    """Count tokens of the longest row that `pack` cannot cut: a prompt with a completion, or with those kept together.

    Args:
        together: a label of each completion, [completions]; those with the same label, and of plain sequences the
            same prompt, are never split.
    """
    longest = 0
    if sequences.nested:
        units = _units(list(range(len(sequences))), together)
        return max((_laid(sequences, unit) for unit in units), default=0)
    for members in by_prompt(sequences):
        sizes = _unit_sizes(sequences, _units(members, together))
        longest = max(longest, len(sequences.prompts[members[0]]) + max(sizes))
    return longest


def _units(members: list[int], together: Sequence[Hashable] | None) -> list[list[int]]:
    """Group completions of one prompt into units that are never split."""
    units: dict[Hashable, list[int]] = {}
    for member in members:
        units.setdefault(member if together is None else together[member], []).append(member)
    return list(units.values())


def _unit_sizes(sequences: Sequences, units: list[list[int]]) -> list[int]:
    return [sum(len(sequences.completions[i]) for i in unit) for unit in units]


def _bundles(
    sequences: Sequences, members: list[int], budget: int, together: Sequence[Hashable] | None, setting: str
) -> Iterable[Bundle]:
    prompt = len(sequences.prompts[members[0]])
    units = _units(members, together)
    sizes = _unit_sizes(sequences, units)
    if prompt + max(sizes) > budget:
        held = units[sizes.index(max(sizes))]
        what = "a completion" if len(held) == 1 else f"the {len(held)} completions that belong together"
        raise UserError(
            f"{setting} is {budget}, smaller than one row: a prompt of {prompt} tokens and {what} of {max(sizes)}; "
            f"make it at least {prompt + max(sizes)}"
        )
    for part in _first_fit(sizes, budget - prompt):
        chosen = [index for position in part for index in units[position]]
        lengths = [len(sequences.completions[index]) for index in chosen]
        pairs = prompt * (prompt + 1) // 2 + sum(length * (2 * prompt + length + 1) // 2 for length in lengths)
        yield Bundle(tuple(chosen), prompt + sum(lengths), pairs)


def _nested_bundles(
    sequences: Sequences, members: list[int], budget: int, together: Sequence[Hashable] | None, setting: str
) -> Iterable[Bundle]:
    """Iterate over tries of at most `budget` tokens."""
    prompts, wholes = [sequences.prompts[index] for index in members], [sequences.whole(index) for index in members]
    numbers = list(range(len(members)))
    units = _units(numbers, None if together is None else [together[index] for index in members])
    sizes = [_laid(sequences, [members[number] for number in unit]) for unit in units]
    if max(sizes) > budget:
        held = units[sizes.index(max(sizes))]
        what = "a turn and its history" if len(held) == 1 else f"{len(held)} turns that belong together, and histories"
        raise UserError(
            f"{setting} is {budget}, smaller than one row: {what} of {max(sizes)} tokens; make it at least {max(sizes)}"
        )
    for chosen in cut_family(prompts, wholes, units, budget):
        held = [members[number] for number in chosen]
        yield Bundle(tuple(held), _laid(sequences, held), attended_pairs([wholes[number] for number in chosen]))


def _laid(sequences: Sequences, members: Sequence[int]) -> int:
    return laid_tokens([sequences.prompts[i] for i in members], [sequences.whole(i) for i in members])


def _first_fit(sizes: Sequence[int], capacity: int) -> list[list[int]]:
    """Put positions of `sizes` in bins of `capacity`, each in the first with room; a larger one has a bin to itself."""
    bins: list[list[int]] = []
    room: list[int] = []
    for position, size in enumerate(sizes):
        place = next((index for index, left in enumerate(room) if left >= size), None)
        if place is None:
            bins.append([])
            room.append(capacity)
            place = len(bins) - 1
        bins[place].append(position)
        room[place] -= size
    return bins
