"""Output of `rewardflow diff`: a difference as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flows.runtime.outcome import columns

if TYPE_CHECKING:
    from tasks.registered.difference import CodeDifference, Difference, SettingDifference
    from tasks.registered.evaluation_difference import FlippedAnswer

LONGEST = 60
"""Maximum length of a value that is printed whole, characters."""
MOST = 8
"""Maximum number of entries printed of each kind; the HTML page and --json contain all."""
INDENT = "  "


def difference_lines(difference: Difference) -> str:
    """Return all differences as text, section by section."""
    from tasks.pages.description import number

    lines = [f"{difference.before}  ->  {difference.after}", "", *_code(difference.code), *_data(difference)]
    for title, settings in (
        ("recipe", difference.recipe),
        ("packages", difference.packages),
        ("machine", difference.machine),
    ):
        lines += setting_lines(title, settings)
    evaluation = difference.evaluation
    if evaluation.metrics:
        rows = [
            [change.name, number(change.before), number(change.after), f"{change.change:+.3f}" + " *" * change.shown]
            for change in evaluation.metrics
        ]
        lines += ["metrics (95 % intervals; * leaves 0 out)"]
        lines += _indented(columns([["metric", "before", "after", "difference"], *rows]))
    if evaluation.flips is not None:
        flips = evaluation.flips
        lines.append(
            f"answers: of {flips.compared:,} greedy ones {len(flips.worse):,} became wrong, {len(flips.better):,} right"
        )
        lines += [*_answers("wrong", evaluation.worse), *_answers("right", evaluation.better)]
    notes = [*difference.notes, *evaluation.notes, *difference.data.unread]
    return "\n".join([*lines, *(f"not compared: {note}" for note in notes)])


def write_page(file: Path, difference: Difference) -> None:
    """Write the HTML page with every row and answer.

    Raises:
        UserError: the file cannot be written.
    """
    from models.base.atomic_write import write_file
    from models.base.errors import UserError
    from tasks.pages.difference_page import page

    try:
        write_file(file, page(difference))
    except OSError as error:
        raise UserError(f"{file}: the page cannot be written ({error.strerror})") from None


def setting_lines(title: str, settings: Sequence[SettingDifference]) -> list[str]:
    """Return one line per setting that differs; for long values, the words that differ."""
    if not settings:
        return [f"{title}: no difference"]
    return [f"{title}: {len(settings)} differ", *_indented(columns([_row(entry) for entry in settings]))]


def _row(entry: SettingDifference) -> list[str]:
    if max(len(entry.before), len(entry.after)) <= LONGEST:
        return [entry.name, f"{entry.before or '(none)'} -> {entry.after or '(none)'}"]
    from models.base.errors import shortened

    old, new = entry.before.split(), entry.after.split()
    removed_words = " ".join(word for word in old if word not in new)
    added_words = " ".join(word for word in new if word not in old)
    sides = [
        f"{sign} {shortened(words, 2 * LONGEST)}" for sign, words in (("-", removed_words), ("+", added_words)) if words
    ]
    return [entry.name, "  ".join(sides) or "other order"]


def _code(code: CodeDifference) -> Iterator[str]:
    if code.before == code.after:
        yield f"code: {code.after or 'no commit'}, the same" + (
            ", but the commit does not hold all of it" if code.after.endswith("-dirty") else ""
        )
        return
    yield f"code: {code.before or 'no commit'} -> {code.after or 'no commit'}"
    if code.ahead is None:
        yield f"{INDENT}this clone does not have both commits"
        return
    yield f"{INDENT}{code.ahead} commits on, {code.behind} back, {len(code.files)} files of the project"
    yield from _indented([*code.files[:MOST], *_more(code.files)])


def _data(difference: Difference) -> Iterator[str]:
    from models.datasets.schema import file_name

    data = difference.data
    if data.before == data.after:
        yield f"data: {data.after or 'none on record'}, the same"
        return
    yield f"data: {data.before or 'none on record'} -> {data.after or 'none on record'}"
    for path, old, new in data.raw:
        yield f"{INDENT}raw {path}: {old or '(none)'} -> {new or '(none)'}"
    head = ["file", "rows", "added", "removed", "changed", "moved here"]
    rows = [
        [
            file_name(split.kind, split.split),
            f"{split.before:,} -> {split.after:,}",
            *(f"{len(ids):,}" for ids in (split.added, split.removed, split.changed, split.moved)),
        ]
        for split in data.splits
    ]
    yield from _indented(columns([head, *rows]) if rows else [])
    for split in data.splits:
        changed = [new if old == new else f"{old}->{new}" for old, new in split.changed]
        moved = [f"{name} (from {origin})" for name, origin in split.moved]
        kinds = (("added", split.added), ("removed", split.removed), ("changed", changed), ("moved here", moved))
        for what, ids in kinds:
            if ids:
                listed = ", ".join([*ids[:MOST], *_more(ids)])
                yield f"{INDENT}{file_name(split.kind, split.split)} {what}: {listed}"


def _answers(what: str, answers: Sequence[FlippedAnswer]) -> Iterator[str]:
    from tasks.pages.description import shortened

    for entry in answers[:MOST]:
        prompt, expected, before, after = (
            shortened("".join(c if c.isprintable() else " " for c in " ".join(text.split())), 2 * LONGEST)
            for text in (entry.prompt, entry.expected, entry.before, entry.after)
        )
        yield f"{INDENT}now {what}  {entry.id}  {prompt}" + (f"  (expected {expected})" if expected else "")
        yield f"{INDENT * 3}before: {before}"
        yield f"{INDENT * 3}after:  {after}"
    yield from _indented(_more(answers))


def _more(entries: Sequence[object]) -> list[str]:
    return [f"... and {len(entries) - MOST:,} more"] if len(entries) > MOST else []


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"{INDENT}{line}" for line in lines]
