"""The page of a difference between two versions or runs: one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Sequence

from models.datasets.row_diff import SplitDifference
from models.datasets.schema import file_name
from tasks.data.data_difference import DataDifference
from tasks.pages.description import number, shortened
from tasks.pages.html_page import escaped, table, whole_page
from tasks.pages.thumbnails import with_thumbnails
from tasks.registered.difference import CodeDifference, Difference, SettingDifference
from tasks.registered.evaluation_difference import FlippedAnswer

LONGEST = 2_000
"""Maximum number of characters that are shown of an answer or a setting."""
MOST = 200
"""Maximum number of rows, and of answers, that are shown of each kind."""


def page(difference: Difference) -> str:
    """Render the whole page."""
    flips = difference.evaluation.flips
    lead = (
        f"{len(difference.recipe)} settings, {len(difference.packages)} packages and {len(difference.machine)} facts "
        f"of the machine differ; {'the rows are the same' if difference.data.same else 'the rows of the data differ'}"
    )
    lead += (
        f"; {len(flips.worse)} answers became wrong and {len(flips.better)} right of {flips.compared}" if flips else ""
    )
    metrics = [
        [
            change.name,
            number(change.before),
            number(change.after),
            f"{change.change:+.3f}",
            "yes" if change.shown else "no",
        ]
        for change in difference.evaluation.metrics
    ]
    sections = (
        ("Metrics", table(["metric", "before", "after", "difference [95 %]", "0 left out"], metrics)),
        ("Became wrong", _answers(difference.evaluation.worse)),
        ("Became right", _answers(difference.evaluation.better)),
        ("Data", _data(difference.data)),
        ("Recipe", _settings(difference.recipe)),
        ("Code", _code(difference.code)),
        ("Packages", _settings(difference.packages)),
        ("Machine", _settings(difference.machine)),
        ("Not compared", _list([*difference.notes, *difference.evaluation.notes, *difference.data.unread])),
    )
    body = "".join(f"<h2>{title}</h2>{content or '<p>no difference</p>'}" for title, content in sections)
    return whole_page(f"{difference.before} → {difference.after}", f"{lead}.", body)


def _settings(settings: Sequence[SettingDifference]) -> str:
    rows = [[entry.name, shortened(entry.before, LONGEST), shortened(entry.after, LONGEST)] for entry in settings]
    return table(["name", "before", "after"], rows)


def _code(code: CodeDifference) -> str:
    lines = [f"{code.before or 'no commit'} → {code.after or 'no commit'}"]
    if code.ahead is None:
        lines.append("this clone does not have both commits")
    else:
        lines.append(f"{code.ahead} commits on, {code.behind} back, {len(code.files)} files")
    return _list(lines) + _folded(f"{len(code.files)} files", _list(code.files))


def _data(data: DataDifference) -> str:
    if data.before == data.after:
        return ""
    hashes = [["prepared", data.before, data.after], *map(list, data.raw)]
    counts = [
        [
            file_name(split.kind, split.split),
            f"{split.before:,}",
            f"{split.after:,}",
            *(f"{len(ids):,}" for ids in (split.added, split.removed, split.changed, split.moved)),
        ]
        for split in data.splits
    ]
    head = ["file", "rows before", "rows after", "added", "removed", "changed", "moved here"]
    return table(["data", "before", "after"], hashes) + table(head, counts) + "".join(map(_rows, data.splits))


def _rows(split: SplitDifference) -> str:
    kinds = (
        ("added", split.added),
        ("removed", split.removed),
        ("changed", [f"{old} → {new}" for old, new in split.changed]),
        ("moved here", [f"{name} from {origin}" for name, origin in split.moved]),
    )
    rows = [[kind, ", ".join(ids[:MOST]) + (" …" if len(ids) > MOST else "")] for kind, ids in kinds if ids]
    return _folded(f"rows of {file_name(split.kind, split.split)}", table(["", "ids"], rows))


def _answers(answers: Sequence[FlippedAnswer]) -> str:
    rows = [
        f"<tr><td><code>{escaped(entry.id)}</code></td>"
        + "".join(
            f"<td><pre>{with_thumbnails(shortened(text, LONGEST))}</pre></td>"
            for text in (entry.prompt, entry.expected, entry.before, entry.after)
        )
        + "</tr>"
        for entry in answers[:MOST]
    ]
    if not rows:
        return ""
    head = "<tr><th>id</th><th>prompt</th><th>expected</th><th>before</th><th>after</th></tr>"
    more = f"<p>and {len(answers) - MOST:,} more</p>" if len(answers) > MOST else ""
    return f"<table>{head}{''.join(rows)}</table>{more}"


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{escaped(title)}</summary>{content}</details>" if content else ""


def _list(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escaped(line)}</li>' for line in lines)}</ul>" if lines else ""
