"""Differences between the rows of two data versions: rows are matched by their content, whatever their ids."""

import random
from pathlib import Path

import pytest

from models.datasets.row_diff import Mark, Place, SplitDifference, read_marks, row_differences, same_prompts, same_rows
from models.datasets.schema import arrow_schema, file_name, write_rows

TRAIN: Place = ("problems", "train")
VALIDATION: Place = ("problems", "validation")


def row(prompt: int, answer: int = 0, name: str = "") -> dict[str, str | int]:
    return {
        "id": name or f"r{prompt}", "prompt": f"p {prompt}", "answer": str(answer), "level": 1, "tests": "",
        "entry_point": "",
    }  # fmt: skip


def marks(folder: Path, rows: list[dict[str, str | int]]) -> list[Mark]:
    folder.mkdir(exist_ok=True)
    write_rows(folder / file_name(*TRAIN), rows, arrow_schema("problems"))
    return list(read_marks(folder, *TRAIN))


@pytest.mark.parametrize("seed", range(5))
def test_rows_that_were_added_removed_and_changed_are_named_though_all_ids_are_others(
    seed: int, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    prompts = list(range(60))
    chance.shuffle(prompts)
    kept, changed, removed, added = prompts[:30], prompts[30:40], prompts[40:50], prompts[50:]
    old = [row(prompt, name=f"old{prompt}") for prompt in (*kept, *changed, *removed)]
    new = [row(p, name=f"new{p}") for p in (*kept, *added)] + [row(p, answer=1, name=f"new{p}") for p in changed]
    chance.shuffle(new)
    said = row_differences({TRAIN: marks(tmp_path, old)}, {TRAIN: marks(tmp_path, new)})[TRAIN]
    assert set(said.added) == {f"new{prompt}" for prompt in added}
    assert set(said.removed) == {f"old{prompt}" for prompt in removed}
    assert set(said.changed) == {(f"old{prompt}", f"new{prompt}") for prompt in changed}
    assert (said.before, said.after, said.moved, said.same) == (50, 50, (), False)


def test_the_same_rows_in_another_order_and_with_other_ids_are_the_same(tmp_path: Path) -> None:
    old = marks(tmp_path, [row(prompt) for prompt in range(9)])
    new = marks(tmp_path, [row(prompt, name=f"n{prompt}") for prompt in reversed(range(9))])
    assert row_differences({TRAIN: old}, {TRAIN: new})[TRAIN].same


def test_a_row_that_stands_twice_and_then_once_was_removed_once(tmp_path: Path) -> None:
    old = marks(tmp_path, [row(1, name="a"), row(1, name="b"), row(2)])
    new = marks(tmp_path, [row(1, name="c"), row(2)])
    said = row_differences({TRAIN: old}, {TRAIN: new})[TRAIN]
    assert (len(said.removed), said.added, said.changed) == (1, (), ())
    back = row_differences({TRAIN: new}, {TRAIN: old})[TRAIN]
    assert (len(back.added), back.removed, back.changed) == (1, (), ())


def test_a_row_that_went_from_training_to_validation_has_moved_and_is_neither_added_nor_removed(tmp_path: Path) -> None:
    rows = marks(tmp_path, [row(prompt) for prompt in range(4)])
    said = row_differences({TRAIN: rows[:3], VALIDATION: rows[3:]}, {TRAIN: rows[:2], VALIDATION: rows[2:]})
    assert said[VALIDATION].moved == (("r2", "train"),)
    assert said[TRAIN] == SplitDifference("problems", "train", before=3, after=2)
    assert not said[TRAIN].same and not said[VALIDATION].added


def test_a_file_that_one_version_alone_has_is_all_added_or_all_removed(tmp_path: Path) -> None:
    rows = marks(tmp_path, [row(prompt) for prompt in range(3)])
    assert len(row_differences({}, {TRAIN: rows})[TRAIN].added) == 3
    assert len(row_differences({TRAIN: rows}, {})[TRAIN].removed) == 3


def test_one_prompt_is_known_again_by_its_text(tmp_path: Path) -> None:
    old = marks(tmp_path, [row(1, name="a"), row(2, name="b"), row(2, name="c")])
    new = marks(tmp_path, [row(2, answer=5, name="x"), row(3, name="y"), row(1, name="a2")])
    assert same_prompts(old, new) == {"x": "b", "a2": "a"}


def test_a_row_with_another_answer_has_the_same_prompt_and_is_not_the_same_row(tmp_path: Path) -> None:
    old = marks(tmp_path, [row(1, name="a"), row(2, name="b"), row(3, name="c")])
    new = marks(tmp_path, [row(3, name="x"), row(2, answer=9, name="y"), row(4, name="z")])
    assert same_rows(old, new) == {"x": "c"} and same_prompts(old, new) == {"x": "c", "y": "b"}
