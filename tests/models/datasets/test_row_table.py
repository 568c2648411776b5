"""Rows read by number: they are the rows of the split, whether they are held in memory or read from a file."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.base.errors import UserError
from models.datasets import row_table
from models.datasets.row_table import Names, Texts, open_rows
from models.datasets.schema import arrow_schema, file_name, read_rows

COUNT = 2600  # two batches and a part of a third


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "clean").mkdir()
    return write(tmp_path / "clean", "one")


def write(folder: Path, mark: str, groups: int = 1000) -> Path:
    rows = [
        {"id": f"p{number % 2000}", "prompt": f"{mark} {number}", "answer": str(number), "level": number % 7}
        for number in range(COUNT)
    ]
    table = pa.Table.from_pylist([row | {"tests": "", "entry_point": ""} for row in rows], arrow_schema("problems"))
    pq.write_table(table, folder / file_name("problems", "train"), row_group_size=groups)
    return folder


@pytest.fixture(params=["held", "in a file"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "in a file":
        monkeypatch.setattr(row_table, "HELD_BYTES", 1000)
    return str(request.param)


def beside(folder: Path) -> list[str]:
    made = folder.with_name(f".{folder.name}.rows")
    return sorted(os.listdir(made)) if made.is_dir() else []


def test_rows_are_the_splits_however_they_are_asked_for(folder: Path, place: str) -> None:
    table, expected = open_rows(folder, "problems", "train"), read_rows(folder, "problems", "train")
    assert beside(folder) == ([] if place == "held" else [".gitignore", "problems_train.arrow", "problems_train.json"])
    assert len(table) == COUNT and table.rows(range(COUNT)) == expected
    numbers = [COUNT - 1, 0, 1, 1, 1024, 1023, 2048, 5]
    assert table.rows(numbers) == [expected[number] for number in numbers] and table.rows([]) == []
    for _ in range(2):  # a column can be read repeatedly
        prompts = table.column("prompt")
        assert [text for some in prompts for text in some] == [row["prompt"] for row in expected]
    made = Texts(table, (lambda row: row["id"] if row["level"] else None, lambda row: row["answer"]))
    texts = [row["id"] for row in expected if row["level"]] + [row["answer"] for row in expected]
    assert [text for some in made for text in some] == [text for some in made for text in some] == texts


def test_rows_are_found_by_name_all_of_them_and_no_other(folder: Path, place: str) -> None:
    names = Names(open_rows(folder, "problems", "train").column("id"))
    assert names.rows(["p1999", "p7", "nobody", "p599"]) == [[1999], [7, 2007], [], [599, 2599]]


def test_the_file_is_made_once_and_anew_where_the_split_has_changed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_table, "HELD_BYTES", 1000)
    first = open_rows(folder, "problems", "train")
    file = folder.with_name(".clean.rows") / "problems_train.arrow"
    made = file.stat().st_mtime_ns
    again = open_rows(folder, "problems", "train")
    assert file.stat().st_mtime_ns == made and again.rows([2000]) == first.rows([2000])
    write(folder, "two", groups=999)
    assert open_rows(folder, "problems", "train").rows([2000])[0]["prompt"] == "two 2000"
    assert first.rows([2000])[0]["prompt"] == "one 2000"  # an open table keeps the old rows
    for damaged in (file.read_bytes()[:-9], file.read_bytes().replace(b"two 7", b"six 7")):
        file.write_bytes(damaged)
        assert open_rows(folder, "problems", "train").rows([7])[0]["prompt"] == "two 7"


def test_where_no_file_can_be_written_the_rows_are_there_all_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_table, "HELD_BYTES", 1000)
    folder.with_name(".clean.rows").write_text("a file where the folder should be")
    with pytest.warns(UserWarning, match="the rows are held in memory"):
        table = open_rows(folder, "problems", "train")
    assert table.rows(range(COUNT)) == read_rows(folder, "problems", "train")


def test_what_is_wrong_with_a_split_is_said_as_ever(folder: Path, place: str) -> None:
    with pytest.raises(UserError, match="has no problems for gate"):
        open_rows(folder, "problems", "gate")
    (folder / file_name("problems", "gate")).write_bytes(b"PAR1 and nothing else")
    with pytest.raises(UserError, match="not a readable Parquet file"):
        open_rows(folder, "problems", "gate")
    table = pq.read_table(folder / file_name("problems", "train"))
    pq.write_table(table.drop_columns("answer"), folder / file_name("problems", "gate"))
    with pytest.raises(UserError, match="no column 'answer'"):
        open_rows(folder, "problems", "gate")
