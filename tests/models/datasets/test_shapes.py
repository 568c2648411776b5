"""Common shapes of data: each is recognised and becomes the expected rows; shape_cases.py holds the table of them."""

from pathlib import Path

import pytest

from tests.models.datasets.shape_cases import CASES, DOCS, FOLDER, Case, as_parquet, result_of, shown, table


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.file)
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_shape_is_recognised_and_becomes_its_rows(case: Case, kind: str, tmp_path: Path) -> None:
    made = result_of(case.path if kind == "jsonl" else as_parquet(case, tmp_path))
    assert (made.format, made.columns) == (case.format, case.columns)
    assert made.rows == case.rows
    assert made.unused == case.unused
    assert made.refused.endswith(case.refused) and bool(made.refused) == bool(case.refused)


def test_every_file_has_a_case() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(case.path.name for case in CASES)


def test_the_table_of_the_page_is_that_of_the_cases() -> None:
    assert shown() == table(), f"python -m tests.models.datasets.shape_cases writes it into {DOCS.name}"
