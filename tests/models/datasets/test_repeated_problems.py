"""Repeated problems: the first row of each is kept, and the gate split sets a few repeats aside."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

from models.answers.answers import extract_answer
from models.base.errors import UserError
from models.datasets.repeated_problems import first_of_repeated, is_first
from models.datasets.schema import Split, arrow_schema, file_name, write_rows
from models.datasets.validation import ValidationReport, ValidationSettings
from tasks.data.validation import validate


def problems(*rows: tuple[str, str]) -> pd.DataFrame:
    """Make problems from (prompt, answer) pairs, of levels 1 and 2 in turn."""
    made = pd.DataFrame(rows, columns=["prompt", "answer"])
    return made.assign(
        id=[f"gate-{number}" for number in range(len(made))], level=made.index % 2 + 1, tests="", entry_point=""
    )


def words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


ROWS = problems(
    ("Add 1 to 2", "3"), ("add  1 TO 2\n", "3 "), ("Add 1 to 2", "4"), ("Add 1 to 3", "4"), ("add 1 to 2", "3")
)


def test_the_first_row_of_a_problem_stays_and_another_answer_or_other_tests_are_another_problem() -> None:
    first = first_of_repeated(lambda: [ROWS])
    assert list(is_first(ROWS, first)) == [True, False, True, True, False]
    tested = ROWS.assign(tests=["", "t", "", "", "t"])
    assert list(is_first(tested, first_of_repeated(lambda: [tested]))) == [True, True, True, True, False]
    alone = ROWS.iloc[2:4]
    assert first_of_repeated(lambda: [alone]) == {} and is_first(alone, {}).all()
    assert first_of_repeated(list) == {}


@pytest.mark.parametrize("at", range(1, 5))
def test_where_a_file_is_cut_into_pieces_is_no_matter(at: int) -> None:
    pieces = [ROWS.iloc[:at], ROWS.iloc[at:]]
    first = first_of_repeated(lambda: pieces)
    assert first == first_of_repeated(lambda: [ROWS])
    assert list(pd.concat([is_first(piece, first) for piece in pieces])) == [True, False, True, True, False]


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize(("split", "doubled", "set_aside"), [("gate", 2, 2), ("validation", 10, 0), ("train", 10, 0)])
def test_at_the_gate_few_doubled_problems_are_set_aside(
    tmp_path: Path, split: Split, doubled: int, set_aside: int
) -> None:
    report = checked(tmp_path, split, doubled)
    assert report.quarantined == set_aside and not report.warnings


def test_a_gate_of_many_doubled_problems_stops_the_flow(tmp_path: Path) -> None:
    says = (
        r"^problems_gate\.parquet: column 'prompt': the problem stands on an earlier row too \(equal after .*\) in 10"
    )
    with pytest.raises(UserError, match=says):
        checked(tmp_path, "gate", 10)


def checked(folder: Path, split: Split, doubled: int) -> ValidationReport:
    """Validate 100 problems and, in capital letters, a copy of the first `doubled` of them."""
    rows = problems(*((f"Add 1 to {number}", str(number + 1)) for number in range(100)))
    rows = pd.concat([rows, rows.iloc[:doubled].assign(prompt=lambda frame: frame["prompt"].str.upper())])
    rows = rows.assign(id=[f"{split}-{number}" for number in range(len(rows))])
    (folder / "data").mkdir()
    file = folder / "data" / file_name("problems", split)
    write_rows(file, rows.to_dict("records"), arrow_schema("problems"))
    return validate(folder / "data", ValidationSettings.model_validate({}), words, extract_answer, folder / "out")
