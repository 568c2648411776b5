"""Tables of the registers: reader of tab-separated files, and tables as text for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from models.base.errors import UserError


def table_rows(file: Path, columns: Sequence[str]) -> list[tuple[str, dict[str, str]]]:
    """Read a table: for every row, its place for messages ("FILE, row NUMBER") and its cells by column.

    Raises:
        UserError: the file cannot be read, its first line does not name `columns`, or a row has other columns.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: cannot be read ({error}); restore it from the repository") from None
    if not lines or tuple(lines[0].split("\t")) != tuple(columns):
        raise UserError(
            f"{file}, row 1: the columns are not {', '.join(columns)}, separated by tabs; correct this line"
        )
    rows = []
    for number, line in enumerate(lines[1:], 2):
        cells = line.split("\t")
        if len(cells) != len(columns):
            raise UserError(f"{file}, row {number}: {len(cells)} columns instead of {len(columns)}; check the tabs")
        rows.append((f"{file}, row {number}", dict(zip(columns, cells, strict=True))))
    return rows


def text_table(rows: Sequence[Sequence[str]], align: str) -> list[str]:
    """Return rows as lines of aligned columns, with a rule below the first row.

    Args:
        rows: cells, [rows][columns]; the first row is the header.
        align: a sign of a format (`<` or `>`) for each column.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(f"{cell:{a}{w}}" for cell, a, w in zip(row, align, widths, strict=True)).rstrip() for row in rows
    ]
    return [lines[0], "-" * len(lines[0]), *lines[1:]]


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines of a Markdown table.

    Args:
        rows: cells, [rows][columns]; the first row is the header.
    """
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return [lines[0], "| --- " * len(rows[0]) + "|", *lines[1:]]
