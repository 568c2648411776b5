"""Preparation in batches: the result depends only on the rows, not on how they are cut, interrupted or distributed."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from models.base.errors import UserError
from models.datasets import raw, row_groups, shards
from models.datasets.normalise import normalise
from models.datasets.placing import same_prompts
from models.datasets.prepare import ID_MARK, prepare
from models.datasets.schema import COLUMNS, KINDS, SPLITS, Kind, Row, Split, available, read_manifest, read_rows
from models.datasets.settings import DataSettings
from models.datasets.splits import divide_held_out, split_of
from tests.support.plain_records import PlainRecord, read_records

ROOT = Path(__file__).resolve().parents[3]


def written(path: Path, rows: Sequence[object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def some_rows(format: str, count: int, seed: int) -> list[dict[str, object]]:
    """Make rows with repeated prompts in two spellings; the column `part` names the split of each."""
    chance = Random(seed)
    rows = []
    for _ in range(count):
        number = chance.randrange(count // 2)
        prompt = chance.choice(["Add {} and one", " add {}  AND one "]).format(number)
        row: dict[str, object] = {"prompt": prompt, "level": chance.randrange(4)}
        if format == "problems":
            row["answer"] = chance.randrange(9)
        else:
            row |= {"chosen": f"{number + 1}", "rejected": "none"}
        if chance.random() < 0.3:
            row["part"] = chance.choice([*SPLITS, "test"])
        else:
            row["part"] = SPLITS[number % 3]
        rows.append(row)
    return rows


def by_definition(settings: DataSettings) -> tuple[dict[tuple[Kind, Split], list[Row]], int]:
    """Return the rows of every kind and split, and the number of dropped rows, computed in memory row by row."""
    assert settings.format is not None and settings.path is not None
    records, _ = read_records(settings.format, [Path(path) for path in settings.path], settings.columns)
    of_test: list[PlainRecord] = []
    if settings.test_path:
        of_test, _ = read_records(settings.format, [Path(path) for path in settings.test_path], settings.columns)
    placed: list[tuple[Split, PlainRecord]] = []
    for record, given in [*((r, r.split) for r in records), *((r, r.split or "test") for r in of_test)]:
        prompt = normalise(str(record.row["prompt"]))
        split = divide_held_out(prompt, settings) if given == "test" else given or split_of(prompt, settings)
        placed.append((split, record))
    latest: dict[str, Split] = {}
    for split, record in placed:
        prompt = normalise(str(record.row["prompt"]))
        latest[prompt] = max(latest.get(prompt, split), split, key=SPLITS.index)
    kept = [
        (split, record)
        for split, record in placed
        if latest[normalise(str(record.row["prompt"]))] == split and (split != "gate" or record.kind == "problems")
    ]
    rows: dict[tuple[Kind, Split], list[Row]] = {(kind, split): [] for kind in KINDS for split in SPLITS}
    ids: dict[str, str] = {}
    for kind in KINDS:
        count = 0
        for split, record in kept:
            prompt = str(record.row["prompt"])
            if record.kind != kind or (kind == "problems" and settings.format != "problems" and prompt in ids):
                continue
            row_id = f"{split}-{ID_MARK[kind]}{count:06d}"
            count += 1
            if kind == "problems":
                ids.setdefault(prompt, row_id)
            known: Row = {"id": row_id, "prompt_id": ids.get(prompt, ""), "level": 0, **record.row}
            rows[kind, split].append({column: known.get(column, "") for column in COLUMNS[kind]})
    return rows, len(placed) - len(kept)


@pytest.mark.parametrize("format", ["problems", "preferences"])
@pytest.mark.parametrize("named", [True, False], ids=["splits named", "splits by hash"])
@pytest.mark.rotating(of=8)
def test_what_is_prepared_is_what_the_definition_says(tmp_path: Path, format: Any, named: bool) -> None:
    for seed in range(6):
        train = written(tmp_path / "train.jsonl", some_rows(format, 120, seed))
        test = written(tmp_path / "test.jsonl", some_rows(format, 60, seed + 50))
        settings = DataSettings(
            name="mine", path=(train,), test_path=(test,) if seed % 2 else None, format=format,
            columns={"split": "part"} if named else {}, validation_share=0.2, gate_share=0.2, seed=seed,
        )  # fmt: skip
        manifest = prepare(settings, tmp_path / "out")
        rows, dropped = by_definition(settings)
        there = available(tmp_path / "out")
        assert {(kind, split) for kind in there for split in there[kind]} == {key for key, held in rows.items() if held}
        for (kind, split), held in rows.items():
            if held:
                assert read_rows(tmp_path / "out", kind, split) == held
        assert manifest["dropped"] == dropped
        assert dropped > 0 or (format == "problems" and not named)


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("suffix", ["jsonl", "json", "csv", "parquet"])
def test_how_rows_are_cut_and_who_reads_them_changes_no_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    rows = [{"prompt": f"Add {n % 40} and {n // 40}", "answer": str(n)} for n in range(90)]
    file = tmp_path / f"rows.{suffix}"
    if suffix == "jsonl":
        written(file, rows)
    elif suffix == "json":
        file.write_text(json.dumps(rows))
    elif suffix == "csv":
        file.write_text("prompt,answer\n" + "".join(f'"{row["prompt"]}",{row["answer"]}\n' for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), file, row_group_size=35)
    settings = DataSettings(name="mine", path=(file,), format="problems", limit=80)
    prepare(settings, tmp_path / "at once")
    assert sum(read_manifest(tmp_path / "at once")["rows"].values()) == 80
    for most, alone in ((1, 1000), (7, 1000), (20, 0)):
        monkeypatch.setattr(raw, "BATCH_ROWS", most)
        monkeypatch.setattr(shards, "ALONE", alone)
        prepare(settings, tmp_path / "cut")
        assert digests(tmp_path / "cut") == digests(tmp_path / "at once")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["at once", "cut", file.name]


def test_a_column_that_only_later_rows_have_counts_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw, "BATCH_ROWS", 2)
    monkeypatch.setattr(shards, "ALONE", 1000)
    rows = [{"prompt": f"p{n}"} for n in range(5)] + [{"prompt": "p5", "answer": "6"}]
    records, _ = read_records("problems", [written(tmp_path / "rows.jsonl", rows)], {})
    assert [record.row["answer"] for record in records] == ["", "", "", "", "", "6"]


def test_columns_are_known_before_rows_are_judged_and_files_are_read_before_columns_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw, "BATCH_ROWS", 1)
    monkeypatch.setattr(shards, "ALONE", 1000)
    wrong = [{"prompt": "x", "answer": [1]}, {"prompt": "y", "level": "hard"}]
    file = written(tmp_path / "rows.jsonl", wrong)
    with pytest.raises(UserError, match="line 1: column 'answer' holds a list"):
        read_records("problems", [file], {})
    with pytest.raises(UserError, match=r"no column 'reply' for data\.columns\.answer; the file has answer, level"):
        read_records("problems", [file], {"answer": "reply"})
    file.write_text(file.read_text() + "{")
    with pytest.raises(UserError, match="line 3: not valid JSON"):
        read_records("problems", [file], {"answer": "reply"})


def killed_at_a_shard(params: Path, out: Path) -> tuple[Path, ...]:
    """Kill the main process of a preparation, and no other, once some shards are written; return their files."""
    command = [sys.executable, "-m", "models.datasets.prepare", str(params), "data", str(out)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as running:
        below = out.with_name(f".{out.name}.shards")
        until = time.monotonic() + 120
        while not (made := tuple(below.rglob("*.arrow"))) and running.poll() is None and time.monotonic() < until:
            time.sleep(0.002)
        workers = psutil.Process(running.pid).children(recursive=True)
        os.kill(running.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(workers, timeout=20)
    assert made and not alive, "whoever worked for it ends with it"
    return made


@pytest.mark.thorough
@pytest.mark.slow
def test_a_killed_preparation_leaves_no_process_and_goes_on_with_the_shards_it_had(tmp_path: Path) -> None:
    rows = [{"prompt": f"Add {n} and one", "answer": str(n + 1)} for n in range(100_000)]
    data = {"name": "mine", "path": [str(written(tmp_path / "rows.jsonl", rows))], "format": "problems"}
    params = tmp_path / "params.yaml"
    params.write_text(yaml.safe_dump({"data": data}))
    settings = DataSettings.model_validate(data)
    made = killed_at_a_shard(params, tmp_path / "out")
    assert not (tmp_path / "out").exists() and len(made) < 7
    before = {file: file.stat().st_mtime_ns for file in made}
    seen: list[dict[Path, int]] = []

    def look(stage: str, rows: int, of: int | None) -> None:
        if stage == "write" and not seen:
            seen.append({file: file.stat().st_mtime_ns for file in before})

    prepare(settings, tmp_path / "out", look)
    assert seen == [before]
    prepare(settings, tmp_path / "fresh")
    assert digests(tmp_path / "out") == digests(tmp_path / "fresh")
    assert not list(tmp_path.glob(".*"))


def test_other_settings_begin_anew(tmp_path: Path) -> None:
    file = written(tmp_path / "rows.jsonl", some_rows("problems", 60, 0))
    settings = DataSettings(name="mine", path=(file,), format="problems", validation_share=0.3, gate_share=0.3)

    def interrupt(stage: str, rows: int, of: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(settings, tmp_path / "out", interrupt)
    assert list((tmp_path / ".out.shards").rglob("*.arrow"))
    other = settings.model_copy(update={"seed": 5})
    prepare(other, tmp_path / "out")
    prepare(other, tmp_path / "fresh")
    assert digests(tmp_path / "out") == digests(tmp_path / "fresh")


def test_whatever_goes_wrong_on_the_way_leaves_nothing_behind(tmp_path: Path) -> None:
    file = written(tmp_path / "rows.jsonl", some_rows("problems", 60, 0))

    def fail(stage: str, rows: int, of: int | None) -> None:
        raise RuntimeError("nobody foresaw it")

    with pytest.raises(RuntimeError):
        prepare(DataSettings(name="mine", path=(file,), format="problems"), tmp_path / "new" / "out", fail)
    assert list(tmp_path.iterdir()) == [file]


def double(number: int) -> int:
    if number == 7:
        raise UserError("seven")
    if number < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


@pytest.mark.rotating(of=8)
def test_side_by_side_results_come_in_order_and_the_first_error_is_the_first_items() -> None:
    assert list(shards.in_order(double, range(7))) == [0, 2, 4, 6, 8, 10, 12]
    made = shards.in_order(double, [0, 1, 2, 7, 3, 7])
    assert [next(made) for _ in range(3)] == [0, 2, 4]
    with pytest.raises(UserError, match="seven"):
        next(made)
    with pytest.raises(UserError, match="was ended from outside; is memory short"):
        list(shards.in_order(double, [1, 2, 3, -1, 4]))


def test_row_groups_hang_on_the_rows_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_groups, "GROUP_ROWS", 10)
    monkeypatch.setattr(row_groups, "GROUP_CHARACTERS", 60)
    table = pa.table({"text": ["x" * (n % 17) for n in range(100)], "level": list(range(100))})
    files = []
    for number, sizes in enumerate([[100], [1] * 100, [33, 33, 34], [0, 99, 1]]):
        files.append(tmp_path / f"{number}.parquet")
        with row_groups.row_groups(files[-1], table.schema) as groups:
            start = 0
            for size in sizes:
                groups.add(table.slice(start, size))
                start += size
            assert groups.rows == 100
    assert len({file.read_bytes() for file in files}) == 1
    assert pq.read_table(files[0]).equals(table)
    whole = pq.ParquetFile(files[0])
    lengths = [whole.read_row_group(at).column("text").to_pylist() for at in range(whole.num_row_groups)]
    assert all(len(texts) == 10 or sum(map(len, texts)) >= 60 for texts in lengths[:-1]) and len(lengths) > 10
    assert all(len(texts) <= 10 and sum(map(len, texts[:-1])) < 60 for texts in lengths)


def test_prompts_are_the_same_where_all_128_bits_are() -> None:
    high = 2**63
    hashes = np.array([[1, 2], [high, 1], [1, 3], [1, 2], [2, 1], [high, 1]], dtype=np.uint64)
    numbers = same_prompts(hashes).tolist()
    assert numbers[0] == numbers[3] and numbers[1] == numbers[5] and len(set(numbers)) == 4
