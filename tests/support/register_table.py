"""Tables of registers that tests write."""

from collections.abc import Sequence
from pathlib import Path


def write_register(file: Path, columns: Sequence[str], *rows: str) -> Path:
    """Write a tab-separated table with these columns, and return its file.

    Args:
        file: file to write.
        columns: names of the columns.
        rows: cells of each row, separated by `|`.
    """
    file.write_text("\n".join(["\t".join(columns), *(row.replace("|", "\t") for row in rows)]) + "\n")
    return file
