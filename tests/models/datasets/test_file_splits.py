"""Splits by file name: the rows of a file go to the split that its name states, and no row is read twice."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.answers.answers import extract_answer
from models.base.errors import UserError
from models.datasets.data_files import DataFile, data_files
from models.datasets.prepare import notes_of, prepare
from models.datasets.schema import available, read_rows
from models.datasets.settings import DataSettings
from models.datasets.validation import ValidationSettings
from tasks.data.validation import validate


def rows_of(mark: str, count: int = 40) -> list[dict[str, str]]:
    return [{"prompt": f"{mark} {number} ?", "answer": f"{number}"} for number in range(count)]


def written(path: Path, rows: Sequence[dict[str, str]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(list(rows)), path)
    elif path.suffix == ".csv":
        path.write_text("\n".join([",".join(rows[0]), *(",".join(row.values()) for row in rows)]))
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    else:
        path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def marks(folder: Path) -> dict[str, set[str]]:
    """Return the first words of the prompts of each split."""
    splits = available(folder)["problems"]
    return {split: {row["prompt"].split()[0] for row in read_rows(folder, "problems", split)} for split in splits}


def prepared(folder: Path, path: Any, **settings: Any) -> dict[str, Any]:
    return prepare(DataSettings(**{"name": "mine", "format": "problems", "path": path, **settings}), folder / "out")


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train-00000-of-00001.parquet", "train"),
        ("gsm8k_test.jsonl", "test"),
        ("dev.csv", "validation"),
        ("Valid.json", "validation"),
        ("my.val.v2.jsonl", "validation"),
        ("testset1.jsonl", "test"),
        ("eval-0.parquet", "test"),
        ("test/part-0.parquet", "test"),
        ("data/train/0000.parquet", "train"),
        ("train_sft-00000-of-00003.parquet", "train"),
        ("rows.jsonl", None),
        ("latest.jsonl", None),
        ("pretraining.jsonl", None),
        ("contest.jsonl", None),
        ("values.csv", None),
        ("train_test.jsonl", None),
        ("train/test.jsonl", None),
    ],
)
def test_a_name_states_its_split_by_a_whole_word(name: str, split: str | None) -> None:
    assert DataFile(Path(name), name).split == split


@pytest.mark.parametrize(
    "names",
    [
        ("train-00000-of-00001.parquet", "validation-00000-of-00001.parquet", "test-00000-of-00001.parquet"),
        ("data/train-00000-of-00001.parquet", "data/valid-00000-of-00001.parquet", "data/test-00000-of-00001.parquet"),
        ("train/0.parquet", "dev/0.parquet", "eval/0.parquet"),
        ("math_train.jsonl", "math_val.jsonl", "math_test.jsonl"),
        ("training.csv", "development.csv", "testing.csv"),
        ("train.json", "validation.csv", "holdout.jsonl"),
    ],
)
def test_train_validation_and_test_files_become_train_validation_and_gate(tmp_path: Path, names: Sequence[str]) -> None:
    for mark, name in zip(("learn", "look", "judge"), names, strict=True):
        written(tmp_path / "hub" / name, rows_of(mark))
    manifest = prepared(tmp_path, tmp_path / "hub")
    assert marks(tmp_path / "out") == {"train": {"learn"}, "validation": {"look"}, "gate": {"judge"}}
    assert sorted(manifest["splits"].values()) == ["gate", "train", "validation"]
    assert len(notes_of(manifest)) == 3 and "(by file name)" in notes_of(manifest)[0]


@pytest.mark.parametrize("name", ["test.jsonl", "validation.jsonl", "eval/rows.jsonl"])
def test_one_kind_of_held_out_file_is_divided_between_validation_and_gate(tmp_path: Path, name: str) -> None:
    written(tmp_path / "hub/train.jsonl", rows_of("learn"))
    written(tmp_path / "hub" / name, rows_of("hold"))
    prepared(tmp_path, tmp_path / "hub")
    assert marks(tmp_path / "out") == {"train": {"learn"}, "validation": {"hold"}, "gate": {"hold"}}


def test_files_that_are_listed_count_as_those_of_a_folder(tmp_path: Path) -> None:
    paths = [written(tmp_path / f"{name}/part.jsonl", rows_of(name)).parent for name in ("train", "dev", "test")]
    prepared(tmp_path, paths)
    assert marks(tmp_path / "out") == {"train": {"train"}, "validation": {"dev"}, "gate": {"test"}}


@pytest.mark.parametrize("name", ["test", "train", "rows"])
def test_files_of_one_split_alone_are_divided_by_the_shares(tmp_path: Path, name: str) -> None:
    """Control: if all files have the same split or none, their names have no effect and the shares divide the rows."""
    for number in range(2):
        written(tmp_path / f"hub/{name}-{number:05}-of-00002.jsonl", rows_of(f"part{number}", 100))
    manifest = prepared(tmp_path, tmp_path / "hub")
    assert set(marks(tmp_path / "out")) == {"train", "validation", "gate"} and "splits" not in manifest


def test_a_limit_holds_for_each_split(tmp_path: Path) -> None:
    for name in ("test", "train", "validation"):
        written(tmp_path / f"hub/{name}.jsonl", rows_of(name))
    assert set(prepared(tmp_path, tmp_path / "hub", limit=7)["rows"].values()) == {7}


def test_a_file_that_test_path_names_too_is_held_out_and_read_once(tmp_path: Path) -> None:
    written(tmp_path / "hub/rows.jsonl", rows_of("learn"))
    test = written(tmp_path / "hub/test/rows.jsonl", rows_of("hold"))
    manifest = prepared(tmp_path, tmp_path / "hub", test_path=test)
    assert marks(tmp_path / "out") == {"train": {"learn"}, "validation": {"hold"}, "gate": {"hold"}}
    assert sum(manifest["rows"].values()) == 80


def test_beside_validation_files_the_test_path_is_the_gates(tmp_path: Path) -> None:
    for name in ("train", "validation"):
        written(tmp_path / f"hub/{name}.jsonl", rows_of(name))
    test = written(tmp_path / "apart.jsonl", rows_of("apart"))
    prepared(tmp_path, tmp_path / "hub", test_path=test)
    assert marks(tmp_path / "out") == {"train": {"train"}, "validation": {"validation"}, "gate": {"apart"}}


def test_files_of_each_kind_have_the_split_of_their_names(tmp_path: Path) -> None:
    for name in ("train", "validation", "test"):
        written(tmp_path / f"hub/problems_{name}.jsonl", rows_of(name))
    written(tmp_path / "hub/demonstrations-train.jsonl", [{"prompt": "train 0 ?", "completion": "0"}])
    prepared(tmp_path, tmp_path / "hub", format="kinds")
    assert marks(tmp_path / "out") == {"train": {"train"}, "validation": {"validation"}, "gate": {"test"}}
    (row,) = read_rows(tmp_path / "out", "demonstrations", "train")
    assert row["prompt_id"] == "train-000000"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("rows.jsonl", "rows.parquet"), "rows.jsonl and .*rows.parquet hold the same rows"),
        (("train.csv", "data/train-00000-of-00001.parquet"), "hold the same rows by their names"),
        (("problems.json", "problems.jsonl"), "hold the same rows by their names"),
        (("train.jsonl", "train-00000-of-00002.jsonl"), "hold the same rows by their names"),
        (("rows.jsonl", "test.jsonl"), "test.jsonl is named as test, and .*rows.jsonl as no split"),
        (("train.jsonl", "test.jsonl", "train_test.jsonl"), "train_test.jsonl as no split or as two"),
        (("validation.jsonl", "test.jsonl"), "named as test, validation, none as train"),
        (("main/train.jsonl", "socratic/train.jsonl"), "name one of its folders: main, socratic"),
    ],
)
def test_a_folder_whose_names_do_not_decide_is_refused_in_one_line(
    tmp_path: Path, names: Sequence[str], message: str
) -> None:
    for name in names:
        written(tmp_path / "hub" / name, rows_of("x"))
    with pytest.raises(UserError, match=message) as error:
        prepared(tmp_path, tmp_path / "hub")
    assert "\n" not in str(error.value) and not (tmp_path / "out").exists()


@pytest.mark.parametrize("again", ["hub/train.jsonl", "hub", "linked.jsonl"])
def test_a_file_that_is_named_twice_is_refused(tmp_path: Path, again: str) -> None:
    first = written(tmp_path / "hub/train.jsonl", rows_of("x"))
    (tmp_path / "linked.jsonl").symlink_to(first)
    with pytest.raises(UserError, match="is named twice"):
        prepared(tmp_path, [first, tmp_path / again])


def test_held_out_files_among_which_one_is_to_train_on_are_refused(tmp_path: Path) -> None:
    for name in ("train", "test"):
        written(tmp_path / f"hub/{name}.jsonl", rows_of(name))
    other = written(tmp_path / "rows.jsonl", rows_of("x"))
    with pytest.raises(UserError, match=r"data\.test_path: .*train\.jsonl is named as a file to train on"):
        prepared(tmp_path, other, test_path=tmp_path / "hub")
    with pytest.raises(UserError, match=r"data\.path: .*train\.jsonl .* all rows of this set are held out"):
        prepared(tmp_path, tmp_path / "hub", validation_share=0, gate_share=1)
    with pytest.raises(UserError, match="divide the held-out files, and both are 0"):
        prepared(tmp_path, tmp_path / "hub", validation_share=0, gate_share=0)


def test_a_column_that_contradicts_the_files_name_is_refused_by_row(tmp_path: Path) -> None:
    for name, split in (("train", "train"), ("test", "gate")):
        written(tmp_path / f"hub/{name}.jsonl", [{**row, "part": split} for row in rows_of(name)])
    prepared(tmp_path, tmp_path / "hub", columns={"split": "part"})
    assert marks(tmp_path / "out") == {"train": {"train"}, "gate": {"test"}}
    written(tmp_path / "hub/test.jsonl", [{**row, "part": "train"} for row in rows_of("test")])
    with pytest.raises(
        UserError, match=r"test\.jsonl, line 1: column 'split' says train in a file that is named as test"
    ):
        prepared(tmp_path, tmp_path / "hub", columns={"split": "part"})


@pytest.mark.rotating(of=6)
def test_a_validation_reports_the_splits_and_what_was_dropped(tmp_path: Path) -> None:
    written(tmp_path / "hub/train.jsonl", [*rows_of("learn"), {"prompt": "JUDGE  1 ?", "answer": "1"}])
    written(tmp_path / "hub/dev.jsonl", rows_of("look"))
    written(tmp_path / "hub/test.jsonl", rows_of("judge"))
    prepared(tmp_path, tmp_path / "hub")
    words = lambda texts: [len(text.split()) for text in texts]  # noqa: E731
    summary = validate(
        tmp_path / "out", ValidationSettings.model_validate({}), words, extract_answer, tmp_path / "checked"
    ).summary()
    for note in ("train: train.jsonl", "validation: dev.jsonl", "gate: test.jsonl", "1 rows dropped", "normalisation"):
        assert note in summary


def test_files_that_hold_no_rows_of_a_download_are_left_out(tmp_path: Path) -> None:
    written(tmp_path / "hub/train.jsonl", rows_of("x"))
    (tmp_path / "hub/dataset_infos.json").write_text("{}")
    (tmp_path / "hub/.cache").mkdir()
    assert [file.name for file in data_files([tmp_path / "hub"])] == ["train.jsonl"]
