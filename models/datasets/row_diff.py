"""Differences between two versions of a prepared data set: rows added, removed, changed, moved to another split.

Rows are compared by their content and not by their ids: ids are numbers that depend on the whole data set, and one more
row at the beginning changes all of them. A removed row and an added row with the same prompt count as one changed row.
For each row an id and two hashes are in memory, whatever its size.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from models.datasets.schema import COLUMNS, IDS, SYSTEM, Kind, Split, table_pieces

Place = tuple[Kind, Split]
"""Kind and split of rows."""


class Mark(NamedTuple):
    """Values that identify a row."""

    id: str
    content: bytes
    """Hash of all columns except the ids."""
    prompt: bytes
    """Hash of the prompt."""


@dataclass(frozen=True)
class SplitDifference:
    """Differences between the rows of one kind and split, each named by its id; in the order of the file."""

    kind: Kind
    split: Split
    before: int
    """Number of rows of the older version."""
    after: int
    """Number of rows of the newer version."""
    added: tuple[str, ...] = ()
    """Ids in the newer version."""
    removed: tuple[str, ...] = ()
    """Ids in the older version."""
    changed: tuple[tuple[str, str], ...] = ()
    """Older and newer id of rows with the same prompt and different content."""
    moved: tuple[tuple[str, Split], ...] = ()
    """Newer id of rows that came from another split, and that split: training rows may be evaluation rows now."""

    @property
    def same(self) -> bool:
        """Whether both versions have the same rows; their order does not count."""
        return self.before == self.after and not (self.added or self.removed or self.changed or self.moved)


def read_marks(folder: Path, kind: Kind, split: Split) -> Iterator[Mark]:
    """Yield the marks of a file of a prepared data set, in its order.

    Raises:
        UserError: see `models.datasets.schema.table_pieces`.
    """
    content = [column for column in COLUMNS[kind] if column not in IDS]
    for piece in table_pieces(folder, kind, split):
        for row in piece.to_pylist():
            yield Mark(
                str(row["id"]),
                _hash([*(row[column] for column in content), *filter(None, [row.get(SYSTEM)])]),
                _hash(row["prompt"]),
            )


def row_differences(
    old: Mapping[Place, Sequence[Mark]], new: Mapping[Place, Sequence[Mark]]
) -> dict[Place, SplitDifference]:
    """Compare two versions, for every place that one of them has.

    Args:
        old: rows of each place of the older version; a place that is left out is empty.
        new: rows of each place of the newer version.
    """
    places = list(dict.fromkeys([*old, *new]))
    gone = {place: _beyond(old.get(place, ()), new.get(place, ())) for place in places}
    come = {place: _beyond(new.get(place, ()), old.get(place, ())) for place in places}
    moved: dict[Place, list[tuple[str, Split]]] = defaultdict(list)
    for place in places:
        for other in places:
            if other[0] == place[0] and other != place:
                come[place], gone[other], pairs = _paired(come[place], gone[other], lambda mark: mark.content)
                moved[place] += [(newer.id, other[1]) for newer, _ in pairs]
    differences = {}
    for place in places:
        added, removed, pairs = _paired(come[place], gone[place], lambda mark: mark.prompt)
        differences[place] = SplitDifference(
            *place,
            before=len(old.get(place, ())),
            after=len(new.get(place, ())),
            added=tuple(mark.id for mark in added),
            removed=tuple(mark.id for mark in removed),
            changed=tuple((older.id, newer.id) for newer, older in pairs),
            moved=tuple(moved[place]),
        )
    return differences


def same_prompts(old: Sequence[Mark], new: Sequence[Mark]) -> dict[str, str]:
    """Return newer id -> older id of the rows with the same prompt; for repeated prompts, of the first rows."""
    return _known_again(old, new, lambda mark: mark.prompt)


def same_rows(old: Sequence[Mark], new: Sequence[Mark]) -> dict[str, str]:
    """Return newer id -> older id of the rows with the same content, answer included; of repeated rows, the first."""
    return _known_again(old, new, lambda mark: mark.content)


def _known_again(old: Sequence[Mark], new: Sequence[Mark], by: Callable[[Mark], bytes]) -> dict[str, str]:
    known: dict[bytes, str] = {}
    for mark in old:
        known.setdefault(by(mark), mark.id)
    pairs: dict[str, str] = {}
    for mark in new:
        if (older := known.pop(by(mark), None)) is not None:
            pairs[mark.id] = older
    return pairs


def _beyond(rows: Sequence[Mark], others: Sequence[Mark]) -> list[Mark]:
    """Return the rows that `others` lacks; of a repeated row, as many copies as `others` has fewer."""
    left = Counter(mark.content for mark in others)
    beyond = []
    for mark in rows:
        if left[mark.content]:
            left[mark.content] -= 1
        else:
            beyond.append(mark)
    return beyond


def _paired(
    come: list[Mark], gone: list[Mark], key: Callable[[Mark], bytes]
) -> tuple[list[Mark], list[Mark], list[tuple[Mark, Mark]]]:
    """Pair rows with the same key; return the unpaired rows of `come` and of `gone`, and the pairs (come, gone)."""
    waiting: dict[bytes, list[Mark]] = defaultdict(list)
    for mark in reversed(gone):
        waiting[key(mark)].append(mark)
    pairs, alone = [], []
    for mark in come:
        if partners := waiting.get(key(mark)):
            pairs.append((mark, partners.pop()))
        else:
            alone.append(mark)
    taken = {id(older) for _, older in pairs}
    return alone, [mark for mark in gone if id(mark) not in taken], pairs


def _hash(value: object) -> bytes:
    return blake2b(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"), digest_size=16).digest()
