"""Parquet values that Python cannot represent: ignored in a column that is not read, otherwise refused in one line.

DuckDB and Spark write PostgreSQL's `infinity` as such a value, and a text column may contain any bytes.
"""

import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.base.errors import UserError
from models.datasets import raw, shards
from models.datasets.arrow_rows import Unreadable
from models.datasets.prepare import prepare
from models.datasets.settings import DataSettings
from tests.support.plain_records import read_records, read_rows

NULLS, COUNT = 20, 40


def text(*values: bytes) -> pa.Array:
    """Make a column of text from bytes without checking that they are UTF-8."""
    return pa.array(values, pa.binary()).view(pa.string())


SPOILT = text(b"\xff\xfe")
MESSAGE = pa.StructArray.from_arrays([text(b"assistant"), SPOILT], ["role", "content"])
UNREADABLE = {
    "a time without end": (pa.array([2**63 - 2], pa.timestamp("us")), "OverflowError: date value out of range"),
    "a date out of range": (pa.array([2**30], pa.date32()), "OverflowError: days=1073741824"),
    "a time zone that is none": (pa.array([1], pa.timestamp("us", tz="No/Where")), "'No/Where'"),
    "bytes that are no text": (SPOILT, "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff"),
    "messages of such bytes": (pa.ListArray.from_arrays(pa.array([0, 1]), MESSAGE), "UnicodeDecodeError: 'utf-8'"),
}


def written(file: Path, odd: pa.Array, name: str) -> Path:
    """Write rows whose column `name` is null in the first NULLS rows and unreadable in the others."""
    prompts = [f"Add {number} and one" for number in range(COUNT)]
    columns = {"prompt": prompts, "answer": [str(number + 1) for number in range(COUNT)]}
    pq.write_table(pa.table(columns | {name: odd.take(pa.array([None] * NULLS + [0] * (COUNT - NULLS)))}), file)
    return file


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_column_that_nobody_reads_may_hold_what_python_cannot(name: str, tmp_path: Path) -> None:
    file = written(tmp_path / "a.parquet", UNREADABLE[name][0], "valid_until")
    rows = [record.row for record in read_records("problems", [file], {})[0]]
    assert [row["answer"] for row in rows] == [str(number + 1) for number in range(COUNT)]


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize(
    ("name", "alone"), [*((name, 1000) for name in UNREADABLE), ("bytes that are no text", 0)]
)  # 0: other processes read the rows
def test_a_value_that_python_cannot_hold_is_named_by_file_row_and_column_and_nothing_is_left(
    name: str, alone: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw, "BATCH_ROWS", 16)
    monkeypatch.setattr(shards, "ALONE", alone)
    odd, reason = UNREADABLE[name]
    file = written(tmp_path / "a.parquet", odd, "answer")
    with pytest.raises(UserError) as refused:
        prepare(DataSettings(name="mine", path=(file,), format="problems"), tmp_path / "new" / "out")
    said = f"{file}, row {NULLS + 1}: column 'answer' holds a value that cannot be read ("
    assert str(refused.value).startswith(said) and reason in str(refused.value)
    assert list(tmp_path.iterdir()) == [file]


def test_a_row_goes_to_another_process_as_it_is_read_and_without_its_batch(tmp_path: Path) -> None:
    row = read_rows([written(tmp_path / "a.parquet", SPOILT, "odd")])[NULLS]
    there = pickle.loads(pickle.dumps(row))  # noqa: S301 - made by this test
    assert there.values == dict(row.values) and isinstance(there.values["odd"], Unreadable)
    assert len(pickle.dumps(row)) < 2000


def test_the_name_of_a_column_that_is_no_text_is_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    file = written(tmp_path / "a.parquet", SPOILT, "anxwer")
    file.write_bytes(file.read_bytes().replace(b"anxwer", b"an\xff\xfeer"))
    with pytest.raises(UserError, match=r"a\.parquet: not a readable Parquet file \('utf-8' codec"):
        read_rows([file])
