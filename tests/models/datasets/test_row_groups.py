"""Row groups of a Parquet file: their bytes depend only on the rows, and an error while writing is raised."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.datasets import row_groups as module
from models.datasets.row_groups import row_groups

SCHEMA = pa.schema([("text", pa.string()), ("number", pa.int64())])


def rows(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table({"text": [f"row {number}" for number in numbers], "number": list(numbers)}, schema=SCHEMA)


@pytest.mark.parametrize("pieces", [[25], [1] * 25, [7, 11, 7]])
def test_bytes_and_groups_hang_on_the_rows_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: list[int]
) -> None:
    monkeypatch.setattr(module, "GROUP_ROWS", 10)
    for name, sizes in (("whole", [25]), ("pieces", pieces)):
        with row_groups(tmp_path / name, SCHEMA) as groups:
            start = 0
            for size in sizes:
                groups.add(rows(start, size))
                start += size
    assert (tmp_path / "pieces").read_bytes() == (tmp_path / "whole").read_bytes()
    written = pq.ParquetFile(tmp_path / "pieces")
    assert [written.metadata.row_group(at).num_rows for at in range(3)] == [10, 10, 5]
    assert written.read().equals(rows(0, 25))


def test_a_row_group_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    other = pa.table({"text": ["a"], "number": ["no number"]})
    with pytest.raises(ValueError, match="schema does not match"), row_groups(tmp_path / "file", SCHEMA) as groups:
        groups.add(other)
