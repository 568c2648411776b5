"""Custom checks that read a whole column, although the rows are validated in pieces."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from models.answers.answers import extract_answer
from models.base.errors import UserError
from models.datasets.schema import COLUMNS, arrow_schema, read_rows, write_rows
from models.datasets.validation import ValidationReport, ValidationSettings
from tasks.data import split_files
from tasks.data.validation import SUITES, validate


def problem(number: int, prompt: str) -> dict[str, Any]:
    row = dict.fromkeys(COLUMNS["problems"], "")
    return row | {"id": f"train-{number}", "prompt": prompt, "answer": "3", "level": 1}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write seven problems, and validate them two at a time. The first and the last have the same prompt."""
    monkeypatch.setattr(split_files, "PIECE_ROWS", 2)
    (tmp_path / "data").mkdir()
    rows = [problem(number, f"Add {number % 6} and 2") for number in range(7)]
    write_rows(tmp_path / "data" / "problems_train.parquet", rows, arrow_schema("problems"))
    return tmp_path / "data"


def held_against(folder: Path, check: dict[str, Any]) -> ValidationReport:
    """Validate the data with the project's suite and one more check."""
    suite = yaml.safe_load((SUITES / "problems.yaml").read_text())
    suite["expectations"].append({"severity": "critical", "reason": "not as it is to be", "why": "So it is.", **check})
    suites = folder.parent / "suites"
    suites.mkdir()
    (suites / "problems.yaml").write_text(yaml.safe_dump(suite))
    count = lambda texts: [1 for _ in texts]  # noqa: E731 - the tokens do not matter
    settings = ValidationSettings(quarantine_share=0.5)
    return validate(folder, settings, count, extract_answer, folder.parent / "out", suites)


@pytest.mark.rotating(of=6)
def test_rows_that_repeat_one_another_in_different_pieces_are_set_aside(folder: Path) -> None:
    report = held_against(folder, {"type": "expect_column_values_to_be_unique", "columns": ["prompt"], "arguments": {}})
    assert report.by_reason == {"not as it is to be": 2}
    kept = [row["id"] for row in read_rows(Path(report.clean), "problems", "train")]
    assert kept == [f"train-{number}" for number in range(1, 6)]
    named = pq.read_table(report.quarantine)["id"].to_pylist()
    assert named == ["train-0", "train-6"]


@pytest.mark.rotating(of=6)
def test_the_table_is_counted_whole(folder: Path) -> None:
    check = {"type": "expect_table_row_count_to_be_between", "arguments": {"min_value": 7, "max_value": 7}}
    assert held_against(folder, check).passed


@pytest.mark.rotating(of=6)
def test_too_few_rows_stop_and_say_how_many_there_are(folder: Path) -> None:
    check = {"type": "expect_table_row_count_to_be_between", "arguments": {"min_value": 8}}
    with pytest.raises(UserError, match=r"problems_train\.parquet: column '': not as it is to be \(observed 7\)"):
        held_against(folder, check)


@pytest.mark.rotating(of=6)
def test_where_most_may_fail_the_share_is_of_the_whole_file(folder: Path) -> None:
    check = {
        "type": "expect_column_values_to_match_regex",
        "columns": ["prompt"],
        "arguments": {"regex": "[0-4] and", "mostly": 0.8},
    }
    assert held_against(folder, check).passed  # six of seven rows match, but only one of two in one piece
