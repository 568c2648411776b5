"""The prepare stage: disjoint splits, stable ids and bytes, complete real data sets, and no files after an error."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from models.base.errors import UserError
from models.datasets.normalise import normalise
from models.datasets.params import run_stage
from models.datasets.prepare import main, prepare
from models.datasets.schema import COLUMNS, SPLITS, available, read_manifest, read_rows, read_table
from models.datasets.settings import DataSettings
from models.datasets.splits import split_of
from models.method.problem import Reads


def written(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def settings_of(**values: Any) -> DataSettings:
    """Make the settings as a recipe does, where a single path need not be in a list."""
    return DataSettings(**values)


def problems(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"prompt": f"What is {number} plus one?", "answer": number + 1} for number in range(start, start + count)]


def all_rows(folder: Path, kind: Reads) -> dict[str, list[dict[str, Any]]]:
    return {split: read_rows(folder, kind, split) for split in available(folder).get(kind, ())}


def prepared_prompts(folder: Path) -> dict[str, set[str]]:
    actual: dict[str, set[str]] = {split: set() for split in SPLITS}
    for kind, splits in available(folder).items():
        for split in splits:
            actual[split] |= {normalise(row["prompt"]) for row in read_rows(folder, kind, split)}
    return actual


def assert_disjoint(folder: Path) -> None:
    for first, other in combinations(prepared_prompts(folder).values(), 2):
        assert not first & other


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.fixture
def user(tmp_path: Path) -> DataSettings:
    """Return settings for a user's problems file of 400 rows."""
    return settings_of(name="mine", path=written(tmp_path / "raw/rows.jsonl", problems(400)), format="problems")


def test_every_row_is_in_one_split_and_the_shares_are_about_those_asked_for(user: DataSettings, tmp_path: Path) -> None:
    prepare(user, tmp_path / "out")
    counts = {split: len(rows) for split, rows in all_rows(tmp_path / "out", "problems").items()}
    assert sum(counts.values()) == 400
    assert 22 <= counts["gate"] <= 58  # 40 +- 3 sigma
    assert 7 <= counts["validation"] <= 33  # 20 +- 3 sigma
    assert_disjoint(tmp_path / "out")


def test_rows_have_every_column_no_null_and_unique_ids(user: DataSettings, tmp_path: Path) -> None:
    prepare(user, tmp_path / "out")
    table = read_table(tmp_path / "out", "problems", "train")
    assert tuple(table.column_names) == COLUMNS["problems"]
    assert table.schema.field("level").type == "int64"
    assert all(column.null_count == 0 for column in table.columns)
    ids = [row["id"] for rows in all_rows(tmp_path / "out", "problems").values() for row in rows]
    assert len(set(ids)) == 400


def test_preparing_twice_gives_the_same_bytes_wherever_the_files_lie(user: DataSettings, tmp_path: Path) -> None:
    prepare(user, tmp_path / "one")
    moved = written(tmp_path / "elsewhere/deep/rows.jsonl", problems(400))
    prepare(user.model_copy(update={"path": (moved,)}), tmp_path / "two")
    assert digests(tmp_path / "one") == digests(tmp_path / "two")


def test_more_rows_move_no_prompt_to_another_split(user: DataSettings, tmp_path: Path) -> None:
    prepare(user, tmp_path / "one")
    grown = written(tmp_path / "raw/grown.jsonl", problems(100, start=400) + problems(400))
    prepare(user.model_copy(update={"path": (grown,)}), tmp_path / "two")
    first, two = prepared_prompts(tmp_path / "one"), prepared_prompts(tmp_path / "two")
    assert all(first[split] <= two[split] for split in SPLITS)


def test_another_seed_splits_otherwise(user: DataSettings) -> None:
    prompts = [row["prompt"] for row in problems(100)]
    other = user.model_copy(update={"seed": 1})
    assert [split_of(prompt, user) for prompt in prompts] != [split_of(prompt, other) for prompt in prompts]


def test_the_split_does_not_depend_on_case_and_spaces(tmp_path: Path) -> None:
    rows = [{"prompt": prompt, "answer": n} for n in range(50) for prompt in (f"Prompt {n}", f"  prompt\n{n} ")]
    prepare(settings_of(name="mine", path=written(tmp_path / "rows.jsonl", rows), format="problems"), tmp_path / "out")
    answers = [[row["answer"] for row in of_split] for of_split in all_rows(tmp_path / "out", "problems").values()]
    assert len(answers) == 3 and all(of_split.count(answer) == 2 for of_split in answers for answer in of_split)


def test_rows_of_a_test_file_are_divided_between_validation_and_gate_and_their_prompts_leave_train(
    tmp_path: Path,
) -> None:
    train = written(tmp_path / "train.jsonl", problems(100))
    test = written(tmp_path / "test.jsonl", [{"prompt": "WHAT is 3  plus one?", "answer": 4}, *problems(299, 900)])
    settings = settings_of(name="mine", path=train, test_path=test, format="problems")
    manifest = prepare(settings, tmp_path / "out")
    rows = all_rows(tmp_path / "out", "problems")
    held_out = {row["answer"] for split in ("validation", "gate") for row in rows[split]}
    assert held_out == {"4", *(str(n + 901) for n in range(299))}
    assert 175 <= len(rows["gate"]) <= 225  # shares of 0.1 and 0.05: two thirds of 300, +- 3 sigma
    assert len(rows["train"]) == 99 and manifest["dropped"] == 1
    assert_disjoint(tmp_path / "out")


def test_a_rotation_gives_the_gate_prompts_that_it_had_not_and_takes_none_from_train(
    user: DataSettings, tmp_path: Path
) -> None:
    prepare(user, tmp_path / "one")
    prepare(user.model_copy(update={"gate_rotation": 1}), tmp_path / "two")
    first, two = prepared_prompts(tmp_path / "one"), prepared_prompts(tmp_path / "two")
    assert first["train"] == two["train"]
    assert first["validation"] < two["gate"] and two["validation"] < first["gate"]


def test_demonstrations_and_preferences_of_the_gates_prompts_are_left_out_and_counted(
    shared_data: Path, tmp_path: Path
) -> None:
    settings = settings_of(
        name="gsm8k", path=shared_data / "gsm8k_train.jsonl", test_path=shared_data / "gsm8k_test.jsonl", format="gsm8k"
    )
    manifest = prepare(settings, tmp_path / "out")
    assert available(tmp_path / "out") == {"problems": SPLITS, "demonstrations": ("train", "validation")}
    assert manifest["dropped"] == len(read_rows(tmp_path / "out", "problems", "gate"))


def test_rows_that_the_data_call_test_are_held_out_and_divided(tmp_path: Path) -> None:
    rows = [{"prompt": f"p {n}", "split": "test" if n % 2 else "train"} for n in range(200)]
    path = written(tmp_path / "rows.jsonl", rows)
    settings = settings_of(name="mine", path=path, format="problems", columns={"split": "split"})
    prepare(settings, tmp_path / "out")
    part = {split: {row["prompt"] for row in of} for split, of in all_rows(tmp_path / "out", "problems").items()}
    assert part["train"] == {f"p {n}" for n in range(0, 200, 2)}
    assert part["validation"] and part["gate"] and len(part["validation"] | part["gate"]) == 100


def test_kinds_that_share_a_prompt_share_its_split_and_refer_to_its_problem(tmp_path: Path) -> None:
    numbers = range(200)
    written(tmp_path / "raw/problems.jsonl", [{"prompt": f"p {n}", "answer": n} for n in numbers])
    written(tmp_path / "raw/demonstrations.jsonl", [{"prompt": f"p {n}", "completion": "x"} for n in numbers])
    written(tmp_path / "raw/preferences.jsonl", [{"prompt": f"p {n}", "chosen": "a", "rejected": "b"} for n in numbers])
    settings = settings_of(name="mine", path=tmp_path / "raw", format="kinds")
    manifest = prepare(settings, tmp_path / "out")
    assert_disjoint(tmp_path / "out")
    ids = {row["id"]: row for rows in all_rows(tmp_path / "out", "problems").values() for row in rows}
    for kind in ("demonstrations", "preferences"):
        for row in (row for rows in all_rows(tmp_path / "out", kind).values() for row in rows):
            assert ids[row["prompt_id"]]["prompt"] == row["prompt"]
    every = [row["id"] for kind in COLUMNS for rows in all_rows(tmp_path / "out", kind).values() for row in rows]
    assert len(every) == len(set(every)) == 600 - manifest["dropped"]


ALIKE = [
    ("Square: 3²", "Square: 32"),
    ("Which letter is a?", "Which letter is A?"),
    ("if x:\n    y = 1\nz = 2", "if x:\n    y = 1\n    z = 2"),
    ("Spell ﬁ", "Spell fi"),
    ("one  space", "one space"),
    ("Name ①", "Name 1"),
]


@pytest.mark.parametrize("format", ["demonstrations", "preferences"])
def test_prompts_that_are_equal_only_after_normalisation_are_problems_of_their_own_in_one_split(
    tmp_path: Path, format: str
) -> None:
    texts = [text.replace("x", "x" * repeat) + " #" * repeat for text in sum(ALIKE, ()) for repeat in range(1, 30)]
    answers = {"completion": "c", "answer": "a"} if format == "demonstrations" else {"chosen": "c", "rejected": "r"}
    rows = [
        {"prompt": text, **{key: f"{value} {number}" for key, value in answers.items()}}
        for number, text in enumerate(texts)
    ]
    path = written(tmp_path / "rows.jsonl", rows)
    prepare(settings_of(name="mine", path=path, format=format, gate_share=0.3), tmp_path / "out")
    problems = all_rows(tmp_path / "out", "problems")
    assert sorted(row["prompt"] for rows in problems.values() for row in rows) == sorted(texts)
    assert all(problems.values())
    assert_disjoint(tmp_path / "out")
    prompt_of = {row["id"]: row for rows in problems.values() for row in rows}
    for row in (row for rows in all_rows(tmp_path / "out", format).values() for row in rows):  # type: ignore[arg-type]
        problem = prompt_of[row["prompt_id"]]
        assert problem["prompt"] == row["prompt"]
        assert problem["answer"] == row.get("answer", "")


@pytest.mark.parametrize(("held_out", "alike"), [("Square: 32", 1), ("Square: 3²", 0), ("Square: 4²", None)])
def test_rows_that_go_because_another_spelling_is_held_out_are_counted_apart(
    tmp_path: Path, held_out: str, alike: int | None
) -> None:
    rows = [{"prompt": "Square: 3²", "split": "train"}, {"prompt": "b", "split": "train"}]
    path = written(tmp_path / "rows.jsonl", [*rows, {"prompt": held_out, "split": "gate"}])
    settings = settings_of(name="mine", path=path, format="problems", columns={"split": "split"})
    manifest = prepare(settings, tmp_path / "out")
    assert manifest["dropped"] == (alike is not None) and manifest.get("dropped_alike", 0) == (alike or 0)


def test_a_given_split_that_leaks_loses_the_leaking_train_rows(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "split": "train"}, {"prompt": "b", "split": "train"}, {"prompt": "A ", "split": "gate"}]
    path = written(tmp_path / "rows.jsonl", rows)
    settings = settings_of(name="mine", path=path, format="problems", columns={"split": "split"})
    manifest = prepare(settings, tmp_path / "out")
    assert manifest["rows"] == {"problems_train.parquet": 1, "problems_gate.parquet": 1}
    assert manifest["dropped"] == 1


def test_a_doubled_problem_stays_for_the_validation_to_find(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.jsonl", [{"prompt": "a", "answer": 1}] * 2)
    prepare(settings_of(name="m", path=path, format="problems", validation_share=0, gate_share=0), tmp_path / "out")
    assert len(read_rows(tmp_path / "out", "problems", "train")) == 2


def test_the_limit_takes_the_first_rows(user: DataSettings, tmp_path: Path) -> None:
    manifest = prepare(user.model_copy(update={"limit": 150}), tmp_path / "out")
    assert sum(manifest["rows"].values()) == 150


def test_a_csv_with_columns_of_its_own_names(tmp_path: Path) -> None:
    lines = [f"What is {n}?,{n}" for n in range(60)]
    (tmp_path / "mine.csv").write_text("\n".join(["q,solution", *lines]))
    columns = {"prompt": "q", "answer": "solution"}
    settings = settings_of(name="mine", path=tmp_path / "mine.csv", format="problems", columns=columns)
    prepare(settings, tmp_path / "out")
    rows = [row for rows in all_rows(tmp_path / "out", "problems").values() for row in rows]
    assert {row["prompt"]: row["answer"] for row in rows} == {f"What is {n}?": str(n) for n in range(60)}


@pytest.mark.rotating(of=6)
def test_gsm8k_is_whole(shared_data: Path, tmp_path: Path) -> None:
    settings = settings_of(
        name="gsm8k", path=shared_data / "gsm8k_train.jsonl", test_path=shared_data / "gsm8k_test.jsonl", format="gsm8k"
    )
    prepare(settings, tmp_path / "out")
    problems, demonstrations = (all_rows(tmp_path / "out", kind) for kind in ("problems", "demonstrations"))
    assert len(problems["train"]) == len(demonstrations["train"]) == 7473
    assert len(problems["validation"]) + len(problems["gate"]) == 1319
    assert all(row["answer"].lstrip("-").isdigit() for row in problems["gate"])
    assert not any("<<" in row["completion"] for row in demonstrations["train"])
    assert_disjoint(tmp_path / "out")


def test_hh_is_whole_and_its_pairs_share_a_prompt(shared_data: Path, tmp_path: Path) -> None:
    raw = [json.loads(line) for line in (shared_data / "hh_harmless_pairs.jsonl").open()]
    settings = settings_of(name="hh", path=shared_data / "hh_harmless_pairs.jsonl", format="hh", gate_share=0)
    prepare(settings, tmp_path / "out")
    pairs = [row for rows in all_rows(tmp_path / "out", "preferences").values() for row in rows]
    assert len(pairs) == 1500
    dialogues = {(row["chosen"].strip(), row["rejected"].strip()) for row in raw}
    for row in pairs:
        assert row["prompt"].endswith("\n\nAssistant:")
        whole = tuple(f"{row['prompt']} {row[side]}".strip() for side in ("chosen", "rejected"))
        assert whole in dialogues or "" in (row["chosen"], row["rejected"]) or "\n\n" in row["chosen"] + row["rejected"]
    rows = [row for rows in all_rows(tmp_path / "out", "problems").values() for row in rows]
    assert len(rows) == len({normalise(row["prompt"]) for row in pairs}) == 1498
    assert {row["answer"] for row in rows} == {""}
    assert_disjoint(tmp_path / "out")


def test_humaneval_is_whole_and_can_be_for_evaluation_alone(shared_data: Path, tmp_path: Path) -> None:
    settings = settings_of(
        name="humaneval", path=shared_data / "humaneval.jsonl", format="humaneval", validation_share=1, gate_share=0
    )
    prepare(settings, tmp_path / "out")
    assert available(tmp_path / "out") == {"problems": ("validation",), "demonstrations": ("validation",)}
    rows = read_rows(tmp_path / "out", "problems", "validation")
    assert len(rows) == 164
    assert all(f"def {row['entry_point']}(" in row["prompt"] and "def check(" in row["tests"] for row in rows)


def test_the_manifest_counts_rows_and_names_sources(user: DataSettings, tmp_path: Path) -> None:
    prepare(user, tmp_path / "out")
    manifest = read_manifest(tmp_path / "out")
    assert manifest["sources"] == {"rows.jsonl": hashlib.sha256((tmp_path / "raw/rows.jsonl").read_bytes()).hexdigest()}
    for name, count in manifest["rows"].items():
        kind, split = name.removesuffix(".parquet").split("_")
        assert len(read_rows(tmp_path / "out", kind, split)) == count


def test_an_empty_split_is_refused_and_nothing_written(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.jsonl", problems(3))
    settings = settings_of(name="tiny", path=path, format="problems", validation_share=0.001)
    with pytest.raises(UserError, match="data set tiny: the validation split of problems is empty"):
        prepare(settings, tmp_path / "out/tiny")
    assert not (tmp_path / "out").exists()


def test_a_failure_while_writing_leaves_the_old_folder_and_nothing_beside_it(
    user: DataSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(user, tmp_path / "out/mine")
    before = digests(tmp_path / "out/mine")

    def no_space(*arguments: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("models.datasets.prepare.sha256_of", no_space)
    with pytest.raises(UserError, match="mine: no space left to write it"):
        prepare(user.model_copy(update={"seed": 5}), tmp_path / "out/mine")
    assert digests(tmp_path / "out/mine") == before
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


def test_a_killed_runs_remains_do_not_get_into_the_next(user: DataSettings, tmp_path: Path) -> None:
    (tmp_path / "out/.mine.4194305.part").mkdir(parents=True)
    (tmp_path / "out/.mine.4194305.part/preferences_train.parquet").touch()
    prepare(user, tmp_path / "out/mine")
    assert "preferences" not in available(tmp_path / "out/mine")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


def test_the_stage_ends_a_users_error_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "params.yaml").write_text("data: {name: mine, path: gone.jsonl, format: problems}")
    assert run_stage(lambda: main([str(tmp_path / "params.yaml"), "data", str(tmp_path / "out")])) == 1
    assert capsys.readouterr().err == "data error: data.path: gone.jsonl: no such file\n"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "mine"}, "not built in"),
        ({"name": "mine", "path": "x.csv"}, "needs a format"),
        ({"name": "arithmetic", "seed": 3}, "seed: only with a path"),
        ({"name": "../mine", "path": "x.csv", "format": "problems"}, "pattern"),
        ({"name": "mine", "path": [], "format": "problems"}, "at least one path"),
        ({"name": "mine", "path": "x.csv", "format": "problem"}, "Input should be 'gsm8k'"),
        ({"name": "mine", "path": "x.csv", "format": "hh", "validation_share": 0.6, "gate_share": 0.6}, "more than 1"),
        (
            {
                "name": "m",
                "path": "x.csv",
                "test_path": "y.csv",
                "format": "hh",
                "validation_share": 0,
                "gate_share": 0,
            },
            "both are 0",
        ),
        ({"name": "mine", "path": "x.csv", "format": "hh", "colums": {}}, "Extra inputs"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        DataSettings.model_validate(given)
