"""Tests of `python -m benchmarks.reproduced` without its trainings: rows, processes, measurements and page."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.reproduced.__main__ import main
from benchmarks.reproduced.experiments import (
    DPO,
    EXPERIMENTS,
    GSM8K,
    REVERSE,
    demonstrations_of,
    read_rows,
    write_inputs,
)
from benchmarks.reproduced.measuring import measure
from benchmarks.reproduced.page import page, shown
from benchmarks.reproduced.processes import run
from benchmarks.reproduced.records import HeldOutScores, ReproductionRecord, read_all, record_of, write
from models.base.errors import UserError
from models.policies.folder import save_model_folder
from tests.support.tiny_models import tiny_policy, word_tokenizer

RECORD = ReproductionRecord(
    experiment="reverse_text",
    side="ours",
    seed=0,
    settings={},
    seconds={"warm_start": 60.0, "fine_tune": 40.0, "whole run": 130.0},
    peak_gib=2.5,
    measured={
        "base": HeldOutScores((0.0, 0.0), (0.0, 0.2)),
        "warm_start": HeldOutScores((0.0, 1.0), (0.5, 1.0)),
        "fine_tune": HeldOutScores((1.0, 1.0), (1.0, 1.0)),
    },
    curve={"reward/total": tuple(number / 20 for number in range(20))},
    weights="a" * 64,
    resumed_weights="a" * 64,
    machine={"cores": 2, "cpu": "a processor", "date": "2026-01-02T03:04:05"},
)


def test_reversed_rows_are_short_sentences_once_each_and_none_is_in_both_files(tmp_path: Path) -> None:
    questions = [f"How many apples has {name}? She has {number} apples at home.\u2028No." for number in range(30)
                 for name in ("Ann", "Bea")]  # fmt: skip
    (tmp_path / "gsm8k_train.jsonl").write_text(
        "".join(json.dumps({"question": text, "answer": "#### 1"}, ensure_ascii=False) + "\n" for text in questions)
    )
    files = write_inputs(replace(REVERSE, test_rows=5), tmp_path, tmp_path / "rows")
    train, test = map(read_rows, files)
    texts = [row["prompt"] for row in (*train, *test)]
    assert len(test) == 5 and len(set(texts)) == len(texts) == 2 + 30
    assert all(row["completion"] == row["answer"] == row["prompt"][::-1] for row in train)


def test_a_data_folder_without_the_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"gsm8k_train.jsonl: not a file; --data names the folder"):
        write_inputs(REVERSE, tmp_path, tmp_path / "rows")


def test_the_folder_of_the_runs_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work, results = tmp_path / "new" / "work", tmp_path / "records.json"
    options = ["--only", "hh_dpo", "--sides", "ours", "--seeds", "1", "--results", str(results)]
    assert main(["--data", str(tmp_path), "--work", str(work), *options]) == 1
    assert work.is_dir() and "hh_harmless_pairs.jsonl: not a file" in capsys.readouterr().err


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_measures_the_stages_that_its_recipe_has(name: str) -> None:
    experiment = EXPERIMENTS[name]
    recipe = experiment.load()
    has = {"base": True, "warm_start": recipe.warm_start is not None, "reward_model": recipe.reward_model is not None,
           "fine_tune": recipe.schedule is not None}  # fmt: skip
    assert all(has[stage] for stage in experiment.stages)
    assert experiment.stages[-1] == ("fine_tune" if recipe.schedule is not None else "reward_model")


def test_demonstrations_of_gsm8k_are_those_that_the_project_reads() -> None:
    row = {"question": " How many? ", "answer": "2 + 3 = <<2+3=5>>5\n#### 5"}
    assert demonstrations_of(GSM8K, [row]) == [
        {"prompt": "How many?", "completion": "2 + 3 = 5\n#### 5", "answer": "5"}
    ]


@pytest.mark.rotating(of=6)
def test_a_process_is_timed_and_killed_when_its_moment_comes(tmp_path: Path) -> None:
    mark, log = tmp_path / "mark", tmp_path / "log"
    script = f"import pathlib, time; pathlib.Path({str(mark)!r}).touch(); print('begun', flush=True); time.sleep(600)"
    ended = run([sys.executable, "-c", script], {}, log, kill_when=mark.exists)
    assert ended.killed and ended.seconds < 60 and ended.peak_gib > 0
    assert not run([sys.executable, "-c", "print('whole')"], {}, log).killed
    assert log.read_text().splitlines() == ["begun", "whole"]
    with pytest.raises(UserError, match="exit status 3"):
        run([sys.executable, "-c", "raise SystemExit(3)"], {}, log)


def test_a_policy_is_no_better_on_pairs_than_itself_and_better_where_it_prefers_the_chosen(tmp_path: Path) -> None:
    torch.manual_seed(0)
    base, same = tmp_path / "base", tmp_path / "same"
    for folder in (base, same):
        save_model_folder(tiny_policy(torch.float32), word_tokenizer(), folder)
    other = tiny_policy(torch.float32)
    with torch.no_grad():
        for weight in other.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    save_model_folder(other, word_tokenizer(), tmp_path / "other")
    rows = [{"chosen": f"\n\nHuman: 7\n\nAssistant: 1 {word}", "rejected": f"\n\nHuman: 7\n\nAssistant: 2 {word}"}
            for word in "345678"]  # fmt: skip
    swapped = [{"chosen": row["rejected"], "rejected": row["chosen"]} for row in rows]
    assert sum(measure(DPO, same, rows, base).strict) == 0  # a margin of zero prefers neither
    right, wrong = (measure(DPO, tmp_path / "other", some, base).strict for some in (rows, swapped))
    assert [good + bad for good, bad in zip(right, wrong, strict=True)] == [1.0] * len(rows)


def test_the_interval_is_that_of_rows_after_the_seeds_are_averaged() -> None:
    assert shown([[0.0, 1.0], [1.0, 0.0]]) == "50.0 % [50.0, 50.0]"
    assert shown([[0.0, 1.0, 1.0, 0.0]]) == "50.0 % [-6.6, 106.6]"


def test_the_page_has_each_stage_and_whether_the_killed_run_ended_at_the_same_bits(tmp_path: Path) -> None:
    file = tmp_path / "records.json"
    for record in (replace(RECORD, seed=1), replace(RECORD, peak_gib=1.0), RECORD):
        write(record, file)
    read, other = read_all(file)
    assert (read, other.seed) == (RECORD, 1) and record_of("reverse_text", "ours", 1, file)
    assert record_of("reverse_text", "trl", 1, file) is None
    text = page([read])
    assert (
        "| Rewardflow | 0 | exact | 0.0 % [0.0, 0.0] | 50.0 % [-48.0, 148.0] | 100.0 % [100.0, 100.0] | 100 | 2.5 |"
        in text
    )
    assert "ends to the same bits" in text and "to OTHER weights" in page([replace(read, resumed_weights="b")])
    assert "GSM8K" not in text
