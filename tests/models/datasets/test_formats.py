"""Formats of raw data: the records that each format gives, and the files that are refused."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from models.base.errors import UserError
from models.datasets.formats import final_answer, split_dialogues, strip_calculator_notes
from tests.support.plain_records import PlainRecord, read_records

START = "\n\nHuman: hi\n\nAssistant: Hello.\n\nHuman: how?\n\nAssistant:"


def written(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def records(
    tmp_path: Path, name: str, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str] | None = None
) -> list[PlainRecord]:
    records, _ = read_records(name, [written(tmp_path / "rows.jsonl", rows)], columns or {})
    return records


def refused(
    tmp_path: Path, name: str, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str] | None = None
) -> str:
    with pytest.raises(UserError) as error:
        records(tmp_path, name, rows, columns)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_calculator_notes_go_and_the_text_stays() -> None:
    assert strip_calculator_notes("Natalia sold 48/2 = <<48/2=24>>24 clips; 4 < 4.8 < 5") == (
        "Natalia sold 48/2 = 24 clips; 4 < 4.8 < 5"
    )


def test_the_final_answer_stands_behind_the_last_mark_without_commas() -> None:
    assert final_answer("#### 1\nso\n#### 1,080") == "1080"
    assert final_answer("no mark") == ""


def test_gsm8k_gives_a_problem_and_its_solution(tmp_path: Path) -> None:
    row = {"question": " How many? ", "answer": "48/2=<<48/2=24>>24\n#### 24"}
    problem, demonstration = records(tmp_path, "gsm8k", [row])
    assert (problem.kind, problem.row) == ("problems", {"prompt": "How many?", "answer": "24"})
    assert demonstration.kind == "demonstrations"
    assert demonstration.row == {"prompt": "How many?", "completion": "48/2=24\n#### 24", "answer": "24"}


def test_columns_of_another_name_are_mapped(tmp_path: Path) -> None:
    row = {"q": "How many?", "solution": "#### 3"}
    problem, _ = records(tmp_path, "gsm8k", [row], {"prompt": "q", "answer": "solution"})
    assert problem.row == {"prompt": "How many?", "answer": "3"}


def test_two_dialogues_share_everything_up_to_their_last_common_assistant() -> None:
    assert split_dialogues(START + " Fine. Thanks", START + " Fine, no.") == (START, "Fine. Thanks", "Fine, no.")


def test_dialogues_that_part_earlier_keep_the_rest_in_the_answers() -> None:
    first = "\n\nHuman: hi\n\nAssistant:"
    assert split_dialogues(first + " A\n\nHuman: x", first + " B") == (first, "A\n\nHuman: x", "B")


def test_of_equal_or_contained_dialogues_nothing_is_lost() -> None:
    prompt, chosen, rejected = split_dialogues(START + " Yes", START + " Yes indeed")
    assert (prompt, chosen, rejected) == (START, "Yes", "Yes indeed")
    assert split_dialogues("abc", "abd") == ("", "abc", "abd")


def test_hh_gives_a_problem_without_answer_a_demonstration_of_the_chosen_and_the_pair(tmp_path: Path) -> None:
    rows_read = records(tmp_path, "hh", [{"chosen": START + " Good", "rejected": START + " Bad"}])
    assert {record.kind: record.row for record in rows_read} == {
        "problems": {"prompt": START},
        "demonstrations": {"prompt": START, "completion": "Good"},
        "preferences": {"prompt": START, "chosen": "Good", "rejected": "Bad"},
    }


def test_a_row_without_a_value_stays_for_the_validation_to_find(tmp_path: Path) -> None:
    rows_read = records(tmp_path, "demonstrations", [{"prompt": "a", "completion": "b"}, {"prompt": None}])
    rows = [record.row for record in rows_read if record.kind == "demonstrations"]
    assert rows[1] == {"prompt": "", "completion": ""}


def test_a_split_column_counts_only_where_the_settings_name_it(tmp_path: Path) -> None:
    row = {"prompt": "a", "answer": "1", "split": "test"}
    assert [record.split for record in records(tmp_path, "problems", [row])] == [None]
    assert [record.split for record in records(tmp_path, "problems", [row], {"split": "split"})] == ["test"]


def test_a_column_that_no_row_has_is_named_with_those_that_there_are(tmp_path: Path) -> None:
    message = refused(tmp_path, "gsm8k", [{"question": "x", "result": "#### 1"}])
    assert "rows.jsonl: no column 'answer' for the field 'answer'" in message
    assert "question, result" in message


def test_a_mapped_column_that_no_row_has_is_named_with_its_key(tmp_path: Path) -> None:
    message = refused(tmp_path, "problems", [{"prompt": "x"}], {"answer": "solution"})
    assert "no column 'solution' for data.columns.answer" in message


def test_a_mapping_of_an_unknown_field_is_refused(tmp_path: Path) -> None:
    message = refused(tmp_path, "gsm8k", [{"question": "x", "answer": "#### 1"}], {"promt": "question"})
    assert "no field 'promt' (its fields: prompt, answer)" in message


@pytest.mark.parametrize(
    ("name", "row"),
    [("gsm8k", {"question": "x", "answer": "just 7"}), ("hh", {"chosen": "a", "rejected": "b"})],
)
def test_data_of_another_shape_are_refused(tmp_path: Path, name: str, row: dict[str, str]) -> None:
    assert f"no row is of the format {name}" in refused(tmp_path, name, [row, row])


def test_one_row_of_another_shape_is_left_to_the_validation(tmp_path: Path) -> None:
    rows = [{"question": "x", "answer": "#### 1"}, {"question": "y", "answer": "just 7"}]
    answers = [record.row["answer"] for record in records(tmp_path, "gsm8k", rows) if record.kind == "problems"]
    assert answers == ["1", ""]


def test_a_level_that_is_no_number_names_its_line(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"prompt": "x", "level": 2}, {"prompt": "y", "level": "hard"}]
    assert "line 2: level 'hard' is not a whole number" in refused(tmp_path, "problems", rows)


def test_an_unknown_split_names_its_line(tmp_path: Path) -> None:
    rows = [{"prompt": "x", "split": "dev"}]
    assert "line 1: split 'dev' is none of train" in refused(tmp_path, "problems", rows, {"split": "split"})


def test_a_folder_of_kinds_gives_each_file_its_kind(tmp_path: Path) -> None:
    written(tmp_path / "problems.jsonl", [{"prompt": "a", "answer": "1", "split": "train"}])
    written(tmp_path / "preferences_part2.jsonl", [{"prompt": "a", "chosen": "b", "rejected": "c"}])
    records, files = read_records("kinds", [tmp_path], {})
    assert [(record.kind, record.split) for record in records] == [("problems", "train"), ("preferences", None)]
    assert len(files) == 2


def test_a_folder_of_kinds_without_any_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "rows.jsonl", [{"prompt": "a"}])
    with pytest.raises(UserError, match=r"has no file problems\.\*"):
        read_records("kinds", [tmp_path], {})
