"""Rows whose expected answer no completion can match are set aside, each with its reason. Great Expectations runs."""

from pathlib import Path

import pandas as pd
import pytest

from models.answers.answer_check import AnswerCheck
from models.answers.answers import extract_answer
from models.datasets.schema import arrow_schema, read_frame, write_rows
from models.datasets.validation import ValidationSettings
from models.parts.rewards.rules.exact_answer import ExactAnswer
from tasks.data.validation import validate

ANSWERS = {
    "plain": "5",
    "marked": "#### 5",
    "boxed": r"$\boxed{5}$",
    "lines": "two\nlines",
    "sentence": "The farmer has five apples left.",
}
NO_TESTS = {"tests": "", "entry_point": ""}


@pytest.mark.parametrize("by_wording", [True, False])
def test_an_answer_that_the_verifier_refuses_and_a_sentence_are_set_aside(tmp_path: Path, by_wording: bool) -> None:
    rows = [
        {"id": name, "prompt": f"How many apples are {name} ?", "answer": answer, "level": 1, **NO_TESTS}
        for name, answer in ANSWERS.items()
    ]
    (tmp_path / "data").mkdir()
    write_rows(tmp_path / "data" / "problems_train.parquet", rows, arrow_schema("problems"))
    report = validate(
        tmp_path / "data",
        ValidationSettings(quarantine_share=1.0),
        lambda texts: [len(text.split()) for text in texts],
        extract_answer,
        tmp_path / "out",
        check_answers=AnswerCheck(ExactAnswer(), by_wording),
    )
    expected = {"lines": "the verifier does not accept the answer itself"}
    if by_wording:
        expected["sentence"] = "the answer is a whole sentence, which only the same words would match"
    quarantine = pd.read_parquet(tmp_path / "out" / "quarantine.parquet")
    assert dict(zip(quarantine["id"], quarantine["reason"], strict=True)) == expected
    assert report.quarantined == len(expected) and report.rows == len(ANSWERS)
    clean = read_frame(tmp_path / "out" / "clean", "problems", "train")
    assert {*clean["id"]} == {*ANSWERS} - {*expected}
