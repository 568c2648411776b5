"""Raw data files: every kind gives the same rows, and an unreadable file is one line that names file and place."""

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.base.errors import UserError
from models.datasets.data_files import files_of
from models.datasets.raw import RawRow
from tests.support.plain_records import read_rows

ROWS = [{"question": "one, or\ntwo?", "answer": "72"}, {"question": 'Zwölf "x"', "answer": ""}]


def texts(rows: Sequence[RawRow]) -> list[dict[str, str]]:
    return [{column: row.text(column) for column in row.values} for row in rows]


def refused(path: Path, content: str | bytes) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError) as error:
        texts(read_rows([path]))
    message = str(error.value)
    assert "\n" not in message
    assert str(path) in message
    return message


def test_every_kind_of_file_gives_the_same_rows(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("\n\n".join(json.dumps(row) for row in ROWS))
    (tmp_path / "a.json").write_text(json.dumps(ROWS))
    (tmp_path / "a.csv").write_text('question,answer\n"one, or\ntwo?",72\n"Zwölf ""x""",\n')
    typed = [{**ROWS[0], "answer": 72}, {**ROWS[1], "answer": None}]
    pq.write_table(pa.Table.from_pylist(typed), tmp_path / "a.parquet")
    for suffix in ("jsonl", "json", "csv", "parquet"):
        assert texts(read_rows([tmp_path / f"a.{suffix}"])) == ROWS, suffix


def test_numbers_become_text_and_whole_floats_whole_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 72.0, "b": 0.5, "c": 7, "d": null, "e": NaN}')
    assert texts(read_rows([path])) == [{"a": "72", "b": "0.5", "c": "7", "d": "", "e": ""}]


def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbfprompt\nx\n")
    assert texts(read_rows([path])) == [{"prompt": "x"}]


def test_the_limit_counts_over_all_files(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.jsonl").write_text(f'{{"x": "{name}1"}}\n{{"x": "{name}2"}}\n')
    (tmp_path / "notes.md").write_text("not data")
    files = files_of([tmp_path])
    assert [row.text("x") for row in read_rows(files, 3)] == ["a1", "a2", "b1"]


def test_broken_json_names_its_line(tmp_path: Path) -> None:
    assert "line 2: not valid JSON" in refused(tmp_path / "a.jsonl", '{"x": 1}\n{"x": \n')


def test_a_json_line_that_is_no_object_names_its_line(tmp_path: Path) -> None:
    assert "line 2: not a JSON object but a list" in refused(tmp_path / "a.jsonl", '{"x": 1}\n[1]\n')


def test_a_value_that_is_no_text_names_line_and_column(tmp_path: Path) -> None:
    assert "line 1: column 'x' holds a list" in refused(tmp_path / "a.jsonl", '{"x": ["y"]}')


def test_a_lone_surrogate_names_line_and_column(tmp_path: Path) -> None:
    assert "line 1: column 'x' is not valid Unicode" in refused(tmp_path / "a.jsonl", '{"x": "\\ud800"}')


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    assert "not UTF-8" in refused(tmp_path / "a.jsonl", b'{"x": "\xff"}')


@pytest.mark.parametrize(("row", "problem"), [("1,2,3", "more"), ("1", "fewer")])
def test_a_csv_row_of_another_length_than_the_header_names_its_line(tmp_path: Path, row: str, problem: str) -> None:
    assert f"line 3: {problem} fields" in refused(tmp_path / "a.csv", f"a,b\n1,2\n{row}\n")


def test_a_corrupt_parquet_file_is_named(tmp_path: Path) -> None:
    assert "not a readable Parquet file" in refused(tmp_path / "a.parquet", b"PAR1 but not really")


def test_a_parquet_file_cut_short_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": ["y"] * 1000}), path)
    assert "not a readable Parquet file" in refused(path, path.read_bytes()[:-20])


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_an_empty_file_has_no_rows(tmp_path: Path, suffix: str) -> None:
    assert "no rows" in refused(tmp_path / f"a.{suffix}", "")


def test_what_is_not_there_or_no_data_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data\.path: .*gone\.csv: no such file"):
        files_of([tmp_path / "gone.csv"])
    with pytest.raises(UserError, match=r"has no \.jsonl"):
        files_of([tmp_path])
    (tmp_path / "a.txt").touch()
    with pytest.raises(UserError, match="unknown kind of file"):
        files_of([tmp_path / "a.txt"])
