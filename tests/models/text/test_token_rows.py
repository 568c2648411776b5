"""Rows of token ids on disk: every way of access returns the row that was written, and memory use is bounded."""

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from models.base.errors import UserError
from models.text import token_rows
from models.text.token_rows import TokenRows, open_rows, rows_in_memory, write_rows

ROWS = [[5, 7], [], [1], [2**31 - 1, 0, 3], [], [9] * 40]


@pytest.fixture(params=["memory", "disk", "file of one write"])
def rows(request: pytest.FixtureRequest, tmp_path: Path) -> TokenRows:
    if request.param == "memory":
        return rows_in_memory((ROWS[:2], ROWS[2:4], ROWS[4:]))
    write_rows(tmp_path / "rows", (ROWS[:4], ROWS[4:]))
    if request.param == "file of one write":  # the older layout, of a single write: `starts` comes first
        parts = load_file(tmp_path / "rows")
        digest = hashlib.sha256(parts["ids"].tobytes() + parts["starts"].tobytes()).hexdigest()
        save_file(parts, tmp_path / "rows", metadata={"sha256": digest})
    return open_rows(tmp_path / "rows", len(ROWS))


def test_a_row_is_the_one_that_was_written_however_it_is_asked_for(
    rows: TokenRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_rows, "BLOCK_ROWS", 4)
    assert list(rows) == [rows[number] for number in range(len(rows))] == ROWS
    assert [rows[-1], list(rows[1:4]), list(rows[::-1])] == [ROWS[-1], ROWS[1:4], ROWS[::-1]]
    assert rows.lengths.tolist() == list(map(len, ROWS))
    some = rows.take(np.array([3, 3, 0]))
    assert list(some) == [ROWS[3], ROWS[3], ROWS[0]] and some.lengths.tolist() == [3, 3, 2]
    assert list(some.take(np.array([2, 0]))) == list(some[2::-2]) == [ROWS[0], ROWS[3]]
    with pytest.raises(IndexError):
        rows[len(ROWS)]


def test_few_rows_are_held_and_many_are_not(rows: TokenRows, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = sum(map(len, ROWS)) + token_rows.OF_A_ROW * len(ROWS)
    monkeypatch.setattr(token_rows, "HELD", taken)
    assert rows.held() == ROWS
    monkeypatch.setattr(token_rows, "HELD", taken - 1)
    assert rows.held() is rows


def test_rows_outlive_their_file(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows", [ROWS])
    rows = open_rows(tmp_path / "rows", len(ROWS))
    (tmp_path / "rows").unlink()
    assert list(rows) == ROWS


def test_a_file_of_another_number_of_rows_is_not_taken(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows", [ROWS])
    with pytest.raises(ValueError, match="6 texts, not 5"):
        open_rows(tmp_path / "rows", 5)
    with pytest.raises(UserError, match="no safetensors file"):
        open_rows(Path(__file__), 5)


@pytest.mark.rotating(of=6)
def test_writing_and_reading_take_memory_by_the_rows_and_not_by_their_tokens(tmp_path: Path) -> None:
    """The ids take 160 MB. A process that writes and reads them needs less than 60 MB more than before."""
    code = """
import resource, sys
from pathlib import Path
from models.text.token_rows import open_rows, write_rows
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
begun = peak()
file = Path(sys.argv[1])
write_rows(file, ([[number] * 2000 for number in range(first, first + 100)] for first in range(0, 20_000, 100)))
rows = open_rows(file, 20_000)
assert all(rows[number][7] == number for number in range(0, 20_000, 97))
assert file.stat().st_size > 160_000_000
print(peak() - begun)
"""
    made = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "rows")], capture_output=True, text=True, check=True
    )
    assert int(made.stdout) < 60_000  # kB
