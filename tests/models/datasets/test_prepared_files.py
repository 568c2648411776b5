"""Reading prepared files: a missing, corrupt or empty file, or one of another type, is reported in one line."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.base.errors import UserError
from models.datasets.schema import arrow_schema, file_name, read_frame, read_manifest, read_rows, write_rows

ROW = {"id": "train-000000", "prompt": "p", "answer": "1", "level": 2, "tests": "", "entry_point": ""}


def refused(folder: Path) -> str:
    with pytest.raises(UserError) as error:
        read_rows(folder, "problems", "train")
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    write_rows(tmp_path / file_name("problems", "train"), [ROW], arrow_schema("problems"))
    assert read_rows(tmp_path, "problems", "train") == [ROW]
    assert read_frame(tmp_path, "problems", "train").to_dict("records") == [ROW]
    assert [path.name for path in tmp_path.iterdir()] == ["problems_train.parquet"]


def test_a_split_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    write_rows(tmp_path / file_name("problems", "gate"), [ROW], arrow_schema("problems"))
    assert "no problems for train (it has problems_gate.parquet)" in refused(tmp_path)


def test_a_corrupt_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "problems_train.parquet").write_bytes(b"PAR1....PAR1")
    assert "problems_train.parquet: not a readable Parquet file" in refused(tmp_path)


def test_an_empty_split_is_said(tmp_path: Path) -> None:
    write_rows(tmp_path / "problems_train.parquet", [], arrow_schema("problems"))
    assert "the train split of problems is empty" in refused(tmp_path)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["a"], "prompt": ["p"]}), tmp_path / "problems_train.parquet")
    assert "no column 'answer' (it has id, prompt)" in refused(tmp_path)


@pytest.mark.parametrize("changes", [{"level": "hard"}, {"answer": None}])
def test_a_column_of_another_type_or_with_nulls_is_refused(tmp_path: Path, changes: dict[str, str | None]) -> None:
    pq.write_table(pa.Table.from_pylist([ROW | changes]), tmp_path / "problems_train.parquet")
    assert "not of the type" in refused(tmp_path)


def test_a_folder_without_manifest_is_not_prepared(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="prepare the data set first"):
        read_manifest(tmp_path)
