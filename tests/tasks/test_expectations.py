"""Validation of data: every faulty row is quarantined with its reason. The tests run Great Expectations itself.

A run takes about a second. Therefore one bad data set has a row of every kind of fault, and many tests read the result.
"""

import html
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.answers.answers import extract_answer
from models.base.errors import UserError
from models.datasets.schema import COLUMNS, arrow_schema, read_frame, write_rows
from models.datasets.validation import ValidationSettings
from tasks.data import split_files
from tasks.data.validation import SUITES, validate

pytestmark = pytest.mark.rotating(of=8)


def words(texts):
    return [len(text.split()) for text in texts]


def run(folder, out, suites=SUITES, **settings):
    return validate(folder, ValidationSettings(**settings), words, extract_answer, out, suites)


def problem(name, **fault):
    row = {"id": name, "prompt": f"Add {name} to 1 .", "answer": "3", "level": 1, "tests": "", "entry_point": ""}
    return row | fault


def demonstration(name, **fault):
    row = {"id": name, "prompt_id": "", "prompt": f"Take 1 from {name} .", "completion": "2 - 1 = 1 ; #### 1"}
    return row | {"answer": "1", "level": 2, "flaw": "none"} | fault


def preference(name, **fault):
    row = {"id": name, "prompt_id": "", "prompt": f"Double {name} .", "chosen": "#### 4", "rejected": "#### 5"}
    return row | {"level": 1, "flaw": "slip"} | fault


def write(folder, **files):
    """Write rows unchanged. The project's own `write_rows` would refuse nulls."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in files.items():
        kind = name.split("_")[0]
        columns = {
            column: pa.array([row[column] for row in rows], type=arrow_schema(kind).field(column).type)
            for column in COLUMNS[kind]
        }
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    return folder


BELL = "\u0007"
BAD = {
    "problems_train": [
        problem("1"),
        problem("2", level=2),
        problem("3", prompt="tab\tand\nnew line are no control characters"),
        problem("blank", prompt=" \n"),
        problem("null", prompt=None),
        problem("bell", prompt=f"Add {BELL} to 1 ."),
        problem("return", prompt="Add 8 to\r 1 ."),
        problem("long", prompt="x" * 101),
        problem("wordy", prompt="w " * 31),
        problem("lines", answer="three\nor four"),
        problem("mute", answer=""),
        problem("twin", prompt="one twin"),
        problem("twin", prompt="other twin"),
        problem("spaced", prompt="  add h1\u00a0TO １ ."),
        problem("reworded", prompt="Please, keep seven red apples in the box !"),
    ],
    "problems_gate": [
        problem("h1", level=3),
        problem("h2", prompt="Now keep seven red apples apart .", level=3),
        problem("h3", prompt="ADD  h1 to 1 .", level=3),
    ],
    "demonstrations_train": [
        demonstration("4"),
        demonstration("5", flaw="slip", completion="2 - 1 = 0 ; #### 0"),
        demonstration("silent", completion=""),
        demonstration("unanswered", completion="2 - 1 = 1"),
        demonstration("drawn", completion=f"{BELL} #### 1"),
        demonstration("heavy", completion="w " * 28 + "#### 1"),
        demonstration("leak", prompt="DOUBLE p1 ."),
    ],
    "preferences_train": [
        preference("6"),
        preference("same", rejected="#### 4 "),
        preference("half", chosen=""),
        preference("other half", rejected=None),
        preference("ringing", rejected=f"#### 4 {BELL}"),
        preference("1", prompt="an id that a problem has too"),
    ],
    "preferences_validation": [preference("p1", chosen="#### 4 !!")],
}
FAULTS = {
    ("problems_train", "blank", "prompt", "the prompt is blank"),
    ("problems_train", "null", "prompt", "the prompt is null"),
    ("problems_train", "bell", "prompt", "the prompt has control characters"),
    ("problems_train", "return", "prompt", "the prompt has control characters"),
    ("problems_train", "long", "prompt", "the prompt has too many characters"),
    ("problems_train", "wordy", "prompt", "the prompt has too many tokens"),
    ("problems_train", "lines", "answer", "the verifier cannot parse the answer"),
    ("problems_train", "mute", "answer", "the verifier cannot parse the answer"),
    ("problems_train", "twin", "id", "the id stands on another row too"),
    ("problems_train", "1", "id", "the id stands on another row too"),
    ("problems_train", "spaced", "prompt", "the prompt stands in a split that is held out further"),
    ("problems_train", "reworded", "prompt", "the prompt shares an n-gram with a split that is held out further"),
    ("problems_gate", "h3", "prompt", "the problem stands on an earlier row too (equal after normalisation)"),
    ("demonstrations_train", "silent", "completion", "the completion is blank"),
    ("demonstrations_train", "unanswered", "completion", "the completion states no answer that the verifier can parse"),
    ("demonstrations_train", "drawn", "completion", "the completion has control characters"),
    ("demonstrations_train", "heavy", "prompt", "prompt and completion have too many tokens"),
    ("demonstrations_train", "leak", "prompt", "the prompt stands in a split that is held out further"),
    ("preferences_train", "same", "rejected", "chosen and rejected are the same"),
    ("preferences_train", "half", "chosen", "the chosen is blank"),
    ("preferences_train", "other half", "rejected", "the rejected is null"),
    ("preferences_train", "ringing", "rejected", "the rejected has control characters"),
    ("preferences_train", "1", "id", "the id stands on another row too"),
}


BOUNDS = {"quarantine_share": 1.0, "max_characters": 100, "max_tokens": 30, "min_label_share": 0.2, "ngram": 4}


@pytest.fixture(scope="module")
def bad(tmp_path_factory):
    """Return the outcome of a validation of data with every kind of fault."""
    root = tmp_path_factory.mktemp("bad")
    folder = write(root / "faulty", **BAD)
    report = run(folder, root / "out", **BOUNDS)
    return SimpleNamespace(
        folder=folder, report=report, quarantine=pd.read_parquet(root / "out" / "quarantine.parquet")
    )


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """Return the outcome of a validation of data without a fault."""
    root = tmp_path_factory.mktemp("good")
    rows = {
        "problems_train": [problem(str(number), level=1 + number % 2) for number in range(40)],
        "problems_validation": [problem(f"v{number}", level=1 + number % 2) for number in range(4)],
        "preferences_gate": [
            preference(f"t{number}", chosen="#### 4" + " " * (number % 2) + "!" * (number % 2), rejected="#### 55",
                       level=1 + number % 2, flaw=("slip", "sign_lost")[number % 2])
            for number in range(4)
        ],
    }  # fmt: skip
    (root / "sound").mkdir()
    for name, entries in rows.items():
        write_rows(root / "sound" / f"{name}.parquet", entries, arrow_schema(name.split("_")[0]))
    manifest = {"name": "sound", "rows": {f"{name}.parquet": len(entries) for name, entries in rows.items()}}
    (root / "sound" / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    return SimpleNamespace(folder=root / "sound", report=run(root / "sound", root / "out"), out=root / "out")


def test_every_faulty_row_is_set_aside_for_its_reason_and_no_other(bad):
    failed = {
        (file.removesuffix(".parquet"), *rest) for file, *rest in bad.quarantine.iloc[:, :4].itertuples(index=False)
    }
    assert failed == FAULTS


@pytest.mark.parametrize("rows", [1, 4])
def test_how_rows_are_cut_into_pieces_changes_nothing(bad, tmp_path, monkeypatch, rows):
    monkeypatch.setattr(split_files, "PIECE_ROWS", rows)
    report = run(bad.folder, tmp_path / "out", **BOUNDS)
    names = ["quarantine.parquet", "data_docs/index.html", *(f"clean/{name}.parquet" for name in BAD)]
    before = Path(bad.report.quarantine).parent
    assert all((tmp_path / "out" / name).read_bytes() == (before / name).read_bytes() for name in names)
    assert replace(report, docs="", clean="", quarantine="") == replace(bad.report, docs="", clean="", quarantine="")


def test_a_quarantined_row_is_there_whole(bad):
    by_id = bad.quarantine.set_index("id")["row"]
    assert json.loads(by_id["bell"]) == problem("bell", prompt=f"Add {BELL} to 1 .")
    assert json.loads(by_id["null"]) == problem("null", prompt=None)
    assert [json.loads(row)["prompt"] for row in by_id["twin"]] == ["one twin", "other twin"]


def test_what_is_left_are_the_other_rows_in_their_order(bad):
    clean = Path(bad.report.clean)
    assert sorted(path.stem for path in clean.iterdir()) == sorted(BAD)
    assert list(read_frame(clean, "problems", "train")["id"]) == ["2", "3"]
    assert list(read_frame(clean, "demonstrations", "train")["id"]) == ["4", "5"]
    assert list(read_frame(clean, "preferences", "train")["id"]) == ["6"]
    assert read_frame(clean, "problems", "train").to_dict("records") == [
        BAD["problems_train"][1],
        BAD["problems_train"][2],
    ]


def test_the_report_counts_rows_and_reasons(bad):
    report = bad.report
    assert not report.passed
    assert report.rows == sum(map(len, BAD.values()))
    assert report.quarantined == len(FAULTS) + 1  # the two twins have one entry in FAULTS
    assert report.by_reason["the id stands on another row too"] == 4
    assert sum(report.by_reason.values()) == len(bad.quarantine)
    assert report.by_file["preferences_train.parquet"] == (6, 5)
    assert "| preferences_train.parquet | 6 | 5 |" in report.summary()
    assert "| the id stands on another row too | 4 |" in report.summary()


def test_lost_balance_is_a_warning_that_sets_no_row_aside(bad):
    assert "problems_train.parquet: column 'level': a level is rare (observed 0.06667)" in bad.report.warnings
    assert any(
        text.startswith("demonstrations_train.parquet: column 'flaw': a flaw is rare") for text in bad.report.warnings
    )
    lopsided = "preferences_validation.parquet: column 'chosen': the chosen completion is nearly always the longer"
    assert any(text.startswith(lopsided) for text in bad.report.warnings)
    assert not set(bad.quarantine["column"]) & {"level", "flaw"}


def test_the_data_docs_hold_every_suite_and_every_failing_id(bad):
    page = Path(bad.report.docs).read_text(encoding="utf-8")
    assert all(f'<h2 id="{name}.parquet">' in page for name in BAD)
    assert "Nothing to answer, or nothing to trace it by." in page
    assert {str(id) for id in bad.quarantine["id"] if id} <= set(re.findall(r"<code>(.*?)</code>", page))


def test_the_data_docs_are_one_page_that_needs_nothing_beside_it(bad):
    """MLflow shows the page alone in a sandbox. It must load no other file and run no script."""
    page = Path(bad.report.docs)
    assert [path.name for path in page.parent.iterdir()] == ["index.html"]
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"<script|<link|<img|<iframe|@import|url\(|src=|href=\"(?!#)", text)
    assert text.count("<style>") == 1 and text.count("✘") >= 3 and text.count("✔") > 20
    assert set(re.findall(r'href="#([^"]*)"', text)) <= set(re.findall(r'id="([^"]*)"', text))


def test_what_a_row_holds_cannot_act_in_the_data_docs(tmp_path):
    hostile = "<script>alert(1)</script>"  # the id of two rows: this fails a check, so the page shows it
    rows = [problem(id) for id in (hostile, hostile, "3")]
    run(write(tmp_path / "data", problems_train=rows), tmp_path / "out", quarantine_share=0.9)
    page = (tmp_path / "out" / "data_docs" / "index.html").read_text(encoding="utf-8")
    assert html.escape(hostile) in page and hostile not in page


def test_sound_data_passes_whole_and_unchanged(good):
    report = good.report
    assert report.passed
    assert (report.rows, report.quarantined, report.by_reason, report.warnings) == (48, 0, {}, [])
    assert report.expectations > 60
    for path in good.folder.iterdir():
        assert (Path(report.clean) / path.name).read_bytes() == path.read_bytes()
    assert len(pd.read_parquet(report.quarantine)) == 0


def test_the_share_is_exact_at_its_bound_and_one_row_more_stops(tmp_path, good):
    # 0.29 * 100 is 28.999999999999996 in binary, but 29 rows must pass.
    rows = [problem(str(number), answer="" if number < 29 else "3") for number in range(100)]
    report = run(write(tmp_path / "data", problems_train=rows), tmp_path / "out", quarantine_share=0.29)
    assert (report.quarantined, len(read_frame(Path(report.clean), "problems", "train"))) == (29, 71)

    rows[40] = problem("40", answer="", prompt="")
    with pytest.raises(UserError) as error:
        run(write(tmp_path / "data", problems_train=rows), tmp_path / "out", quarantine_share=0.29)
    message = str(error.value)
    assert message.startswith(
        "problems_train.parquet: column 'answer': the verifier cannot parse the answer in 30 rows, such as 0, 1, 2; "
        "30 of 100 rows fail a check, quarantine_share 0.29 lets 29 pass"
    )
    assert "\n" not in message
    assert str(tmp_path / "out" / "quarantine.parquet") in message
    assert len(pd.read_parquet(tmp_path / "out" / "quarantine.parquet")) == 31
    assert (tmp_path / "out" / "data_docs" / "index.html").is_file()
    assert not (tmp_path / "out" / "clean").exists()  # the clean rows of the previous run are removed too
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["data_docs", "quarantine.parquet"]


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("level", pa.array(["one"]), r"problems_train\.parquet: column 'level' holds string, not int64"),
        ("prompt", pa.array([["a", "list"]]), r"problems_train\.parquet: column 'prompt' holds list<.*>, not string"),
        ("answer", pa.array([3]), r"problems_train\.parquet: column 'answer' holds int64, not string"),
        (
            "level",
            pa.array([1], pa.int8()),
            r"problems_train\.parquet: column 'level': the level is not a whole number",
        ),
    ],
)
def test_a_column_of_another_type_stops_and_is_named(tmp_path, column, values, message):
    folder = write(tmp_path / "data", problems_train=[problem("1")])
    table = pq.read_table(folder / "problems_train.parquet")
    replaced = table.set_column(table.schema.get_field_index(column), column, values)
    pq.write_table(replaced, folder / "problems_train.parquet")
    with pytest.raises(UserError, match=message):
        run(folder, tmp_path / "out")
    assert not (tmp_path / "out" / "clean").exists()


def test_a_missing_column_an_empty_split_a_broken_file_and_no_files_are_one_line_each(tmp_path):
    folder = write(tmp_path / "data", problems_train=[problem("1")], problems_gate=[])
    with pytest.raises(UserError, match=r"problems_gate\.parquet: the gate split of problems is empty"):
        run(folder, tmp_path / "out")
    (folder / "problems_gate.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(UserError, match=r"problems_gate\.parquet: not a readable Parquet file"):
        run(folder, tmp_path / "out")
    table = pq.read_table(folder / "problems_train.parquet").drop_columns("answer")
    pq.write_table(table, folder / "problems_gate.parquet")
    with pytest.raises(UserError, match=r"problems_gate\.parquet: no column 'answer'"):
        run(folder, tmp_path / "out")
    with pytest.raises(UserError, match="no prepared data"):
        run(tmp_path / "nowhere", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_every_file_that_stops_the_flow_is_named_in_one_line_the_worst_first(tmp_path):
    folder = write(
        tmp_path / "data",
        problems_train=[problem("1"), problem("2"), problem("mute", answer="")],
        demonstrations_train=[demonstration("silent", completion=""), demonstration("gone", completion="")],
        preferences_train=[preference("6")],
    )
    small = pq.read_table(folder / "preferences_train.parquet")
    at = small.schema.get_field_index("level")
    pq.write_table(small.set_column(at, "level", pa.array([1], pa.int8())), folder / "preferences_train.parquet")
    with pytest.raises(UserError) as error:
        run(folder, tmp_path / "out")
    message = str(error.value)
    named = [
        "preferences_train.parquet: column 'level': the level is not a whole number",
        "demonstrations_train.parquet: column 'completion': the completion is blank in 2 rows, such as silent, gone; "
        "2 of 2 rows fail a check",
        "problems_train.parquet: column 'answer': the verifier cannot parse the answer in 1 rows, such as mute; "
        "1 of 3 rows fail a check",
    ]
    places = [message.index(sentence) for sentence in named]
    assert places == sorted(places) and places[0] == 0 and "\n" not in message
    assert message.endswith(f"the report is {tmp_path / 'out' / 'data_docs' / 'index.html'}")
    assert len(pd.read_parquet(tmp_path / "out" / "quarantine.parquet")) == 3
    assert not (tmp_path / "out" / "clean").exists()


def test_every_file_without_readable_rows_is_named(tmp_path):
    folder = write(tmp_path / "data", problems_train=[problem("1")], problems_gate=[], preferences_train=[])
    (folder / "preferences_train.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(UserError) as error:
        run(folder, tmp_path / "out")
    assert "problems_gate.parquet: the gate split of problems is empty; and " in str(error.value)
    assert "preferences_train.parquet: not a readable Parquet file" in str(error.value)


def test_data_of_which_nothing_is_left_is_refused_even_where_every_row_may_fail(tmp_path):
    folder = write(tmp_path / "data", problems_train=[problem("1", prompt=" ")])
    with pytest.raises(UserError, match=r"problems_train\.parquet: no row passed its checks"):
        run(folder, tmp_path / "out", quarantine_share=1.0)


def test_an_expectation_that_does_not_exist_is_named(tmp_path):
    text = (SUITES / "problems.yaml").read_text().replace("values_to_match_regex", "values_to_be_nice")
    (tmp_path / "problems.yaml").write_text(text)
    with pytest.raises(UserError, match="expect_column_values_to_be_nice"):
        run(write(tmp_path / "data", problems_train=[problem("1")]), tmp_path / "out", suites=tmp_path)


def test_great_expectations_is_imported_only_when_something_is_validated():
    code = "import sys, tasks.data.validation; print('great_expectations' in sys.modules)"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
