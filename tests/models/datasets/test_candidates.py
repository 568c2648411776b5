"""Scored completions: which become demonstrations and pairs, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from models.base.errors import UserError
from models.datasets.candidates import ScoredCompletion, judge
from models.datasets.inspection import Inspection, inspect
from models.datasets.prepare import notes_of, prepare
from models.datasets.raw import RawRow
from models.datasets.schema import read_rows
from models.datasets.settings import DataSettings


def judged(scores: list[int], *, labels: bool) -> list[tuple[str, str, bool]]:
    candidates = [
        ScoredCompletion(RawRow(Path("rows.jsonl"), at, {"text": f"{at}"}), None if score < 0 else score)  # type: ignore[arg-type]
        for at, score in enumerate(scores)
    ]
    return [
        (row.chosen.raw.values["text"], row.rejected.raw.values["text"] if row.rejected else "", row.demonstrates)
        for row in judge(candidates, labels=labels)
    ]


def test_the_best_is_preferred_to_each_lower_one_and_is_one_demonstration() -> None:
    assert judged([2, 4, 1], labels=False) == [("1", "0", True), ("1", "2", False)]


def test_several_best_ones_share_the_lower_ones_in_turn() -> None:
    assert judged([1, 1, 0, 0, 0], labels=True) == [("0", "2", True), ("1", "3", True), ("0", "4", False)]
    assert judged([1, 1, 0], labels=True) == [("0", "2", True), ("1", "", True)]


def test_a_label_needs_no_other_completion_and_a_score_does() -> None:
    assert judged([1], labels=True) == [("0", "", True)]
    assert judged([4, 4], labels=False) == []
    assert judged([0, 0], labels=True) == []
    assert judged([-1, 3], labels=False) == []


def written(tmp_path: Path, form: str, rows: list[dict[str, Any]], **given: Any) -> DataSettings:
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    named = {"name": "mine", "path": tmp_path / "rows.jsonl", "format": form, **given}
    return DataSettings.model_validate(named)


def seen(tmp_path: Path, form: str, rows: list[dict[str, Any]], **given: Any) -> Inspection:
    return inspect(written(tmp_path, form, rows, **given))


@pytest.mark.parametrize(
    ("form", "row", "reason"),
    [
        ("kto", {"prompt": "p", "completion": "c", "label": "good"}, "line 1: column 'label' holds 'good'; a label is"),
        ("kto", {"prompt": "p", "completion": "c", "label": 2}, "a label is true or false, 1 or 0"),
        ("kto", {"prompt": "p", "completion": ["c"], "label": True}, "column 'completion' holds a list, not text"),
        ("stepwise", {"prompt": "p", "completions": ["a"], "labels": [True, False]}, "not two lists of the same"),
        ("helpsteer", {"prompt": "p", "response": "r", "helpfulness": "high"}, "holds 'high'; a score is a number"),
        ("helpsteer", {"prompt": "p", "response": "r", "helpfulness": True}, "holds a bool; a score is a number"),
        ("ultrafeedback", {"instruction": "i", "completions": ["a"]}, "is not a list of completions with a response"),
        ("ultrafeedback", {"instruction": "i", "completions": [{"response": "a"}]}, "none has fine-grained_score,"),
    ],
)  # fmt: skip
def test_a_value_of_another_form_is_refused_with_its_place(
    tmp_path: Path, form: str, row: dict[str, Any], reason: str
) -> None:
    made = seen(tmp_path, form, [row])
    assert made.refused == 1 and reason in made.reason and "rows.jsonl, line 1" in made.reason


def test_labels_and_lists_are_refused_by_formats_that_do_not_ask_for_them(tmp_path: Path) -> None:
    made = seen(tmp_path, "problems", [{"prompt": "p", "answer": True}, {"prompt": ["a", "b"], "answer": 1}])
    assert made.refused == 2


def test_lists_may_be_json_in_a_csv_file(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(
        'prompt,completions,labels\nAdd 1 and 2.,"[""1 + 2"", ""= 3""]","[true, true]"\n'
    )
    made = inspect(DataSettings(name="mine", path=(tmp_path / "rows.csv",), format="auto"))
    assert made.first["demonstrations"] == {"prompt": "Add 1 and 2.", "completion": "1 + 2\n= 3"}


def test_messages_as_prompt_and_completion_are_compared_too(tmp_path: Path) -> None:
    asked = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}]
    rows = [
        {"prompt": asked, "completion": [{"role": "assistant", "content": text}], "label": text == "Welcome"}
        for text in ("Go", "Welcome")
    ]
    made = seen(tmp_path, "kto", rows)
    prompt = {"prompt": "Be kind.\n\nHello", "system": "Be kind."}
    assert made.first["preferences"] == {**prompt, "chosen": "Welcome", "rejected": "Go"}


def test_another_score_and_other_columns_can_be_named(tmp_path: Path) -> None:
    rows = [{"q": "p", "response": text, "truth": score} for text, score in (("a", 1), ("b", 2.5), ("c", None))]
    made = seen(tmp_path, "helpsteer", rows, columns={"prompt": "q", "score": "truth"})
    assert (made.first["preferences"]["chosen"], made.made["preferences"], made.unused) == ("b", 1, 1)


def test_rows_of_one_prompt_are_found_wherever_they_are_and_the_unused_are_noted(tmp_path: Path) -> None:
    rows = [{"prompt": f"p{n % 30}", "completion": f"c{n}", "label": n < 30 and n % 30 > 9} for n in range(60)]
    settings = written(tmp_path, "kto", rows, validation_share=0.0, gate_share=0.0)
    manifest = prepare(settings, tmp_path / "made")
    assert manifest["rows"] == {"problems_train.parquet": 30, "demonstrations_train.parquet": 20,
                                "preferences_train.parquet": 20}  # fmt: skip
    assert manifest["unused"] == 20 and notes_of(manifest)[0].startswith("20 completions are in no row")
    pairs = read_rows(tmp_path / "made", "preferences", "train")
    assert {(row["prompt"], row["chosen"], row["rejected"]) for row in pairs} == {
        (f"p{n}", f"c{n}", f"c{n + 30}") for n in range(10, 30)
    }
    problems = {row["id"]: row["prompt"] for row in read_rows(tmp_path / "made", "problems", "train")}
    assert all(problems[row["prompt_id"]] == row["prompt"] for row in pairs)


def test_a_row_that_cannot_be_read_stops_the_preparation(tmp_path: Path) -> None:
    settings = written(tmp_path, "kto", [{"prompt": "p", "completion": "c", "label": None}])
    with pytest.raises(UserError, match="line 1: column 'label' holds 'None'"):
        prepare(settings, tmp_path / "made")


def test_auto_is_refused_for_files_of_kinds(tmp_path: Path) -> None:
    (tmp_path / "problems.jsonl").write_text('{"prompt": "p"}')
    with pytest.raises(UserError, match=r"set data\.format=kinds"):
        prepare(DataSettings(name="mine", path=(tmp_path,), format="auto"), tmp_path / "made")
