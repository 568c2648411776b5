"""The guard `copied`: runs by brute force, planted rows and fresh text with intervals, and what the gate refuses."""

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from models.base.errors import UserError
from models.datasets.prepare import prepare
from models.datasets.settings import DataSettings
from models.evaluation.bootstrap import bootstrap_mean
from models.evaluation.copied import CopiedSettings, copied_flags, overlaps, with_copied
from models.evaluation.gate.checks import GateCheck
from models.evaluation.gate.gate import GateSettings, judge
from models.evaluation.records import Completion, PromptRecord
from models.evaluation.report import summarise
from models.evaluation.table import read_records, write_records
from models.method.problem import Problem

WORDS = [f"w{number}" for number in range(300)]
COPIED = CopiedSettings(words=4, run=8)
SETTINGS = GateSettings(samples=2, copied=COPIED, capabilities=("greedy_accuracy",))


def written(random: Random, length: int = 30, vocabulary: int = 300) -> str:
    return " ".join(random.choices(WORDS[:vocabulary], k=length))


def by_brute_force(text: str, prompt: str, rows: list[str], words: int, run: int) -> tuple[int, float]:
    """Return run and share by comparing every run of words with every row."""
    tokens = text.lower().split()
    padded = [f" {' '.join(row.lower().split())} " for row in rows]
    given = f" {' '.join(prompt.lower().split())} "

    def runs_of(some: list[str], size: int) -> list[str]:
        return [f" {' '.join(some[place : place + size])} " for place in range(len(some) - size + 1)]

    def flags(size: int) -> list[bool]:
        runs = runs_of(tokens, size)
        repeated = [any(short in given for short in runs_of(run.split(), words)) for run in runs]
        return [not known and any(run in row for row in padded) for run, known in zip(runs, repeated, strict=True)]

    def longest(size: int) -> int:
        joined = "".join("x" if flag else " " for flag in flags(size)).split()
        return max((len(part) + size - 1 for part in joined), default=0)

    share = sum(flags(words)) / len(flags(words)) if flags(words) else 0.0
    return longest(run) or min(longest(words), run - 1), share


def test_a_repeated_prompt_and_one_more_word_of_its_row_are_no_copy() -> None:
    row = [f"w{number}" for number in range(30)]
    overlap = overlaps([" ".join(row[:16])], [" ".join(row[:15])], [" ".join(row)], 8, 16)[0]
    assert overlap.run == 8


@pytest.mark.parametrize("seed", range(5))
def test_run_and_share_are_those_of_a_comparison_word_by_word(seed: int) -> None:
    random = Random(seed)
    rows = [written(random, vocabulary=4) for _ in range(30)]
    texts = [written(random, random.randrange(0, 14), vocabulary=4) for _ in range(30)] + ["", "w1 w2"]
    prompts = [written(random, 8, vocabulary=4) for _ in texts]
    expected = [by_brute_force(text, prompt, rows, 4, 6) for text, prompt in zip(texts, prompts, strict=True)]
    assert [(each.run, each.share) for each in overlaps(texts, prompts, rows, 4, 6)] == expected
    assert len({run for run, _ in expected}) > 3


def test_a_planted_row_is_found_whole_whatever_its_case_and_space() -> None:
    random = Random(0)
    rows = [written(random) for _ in range(50)]
    inside = f"{written(random, 5)}\n {rows[7].upper().replace(' ', '  ')} {written(random, 5)}"
    (overlap,) = overlaps([inside], [""], rows, 8, 16)
    assert overlap.run == 30 and overlap.share == pytest.approx(23 / 33)


def test_words_of_the_own_prompt_are_not_copies() -> None:
    row = written(Random(1))
    assert [each.run for each in overlaps([row, row], [row, ""], [row], 8, 16)] == [0, 30]


@pytest.mark.rotating(of=6)
def test_neither_the_batches_of_rows_nor_other_samples_change_a_measure() -> None:
    random = Random(2)
    rows = [written(random, vocabulary=6) for _ in range(9000)]
    texts = [written(random, 12, vocabulary=6) for _ in range(8)]
    together = overlaps(texts, [""] * 8, rows, 6, 8)
    assert together == [overlaps([text], [""], reversed(rows), 6, 8)[0] for text in texts]


def test_words_in_a_row_are_copied_only_if_a_single_row_contains_them() -> None:
    rows = ["a b c d e f", "d e f g h i"]  # they overlap by three words
    joined, single = overlaps(["a b c d e f g h i", "x a b c d e f"], ["", ""], rows, 3, 6)
    assert (joined.run, joined.share) == (6, 1.0) and single.run == 6
    (apart,) = overlaps(["b c d e f g"], [""], rows, 3, 6)
    assert apart.run == 5 and apart.share == 1.0  # every three words occur, but no row contains all six


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copied")
    (folder / "rows").mkdir()
    random = Random(3)
    lines = ["id,prompt,completion,split"]
    lines += [f"d{number},ask {number},{written(random)},train" for number in range(300)]
    lines += [f"v{number},ask v{number},{written(random)},validation" for number in range(20)]
    (folder / "rows" / "demonstrations.csv").write_text("\n".join(lines))
    prepare(
        DataSettings(name="copied", path=(folder / "rows" / "demonstrations.csv",), format="demonstrations"),
        folder / "prepared",
    )
    return folder / "prepared"


def policy(texts: list[str], right: bool = False) -> tuple[list[PromptRecord], list[Problem]]:
    records = [
        PromptRecord(f"p{place}", 1, (Completion(a, 30, right, True), Completion(b, 30, right, True)),
                     Completion(a, 30, True, True))
        for place, (a, b) in enumerate(zip(texts[::2], texts[1::2], strict=True))
    ]  # fmt: skip
    return records, [Problem(record.id, "ask") for record in records]


def fresh(seed: int) -> list[str]:
    random = Random(seed)
    return [written(random) for _ in range(400)]


def memorised(data: Path, seed: int, share: float) -> list[str]:
    """Return fresh texts of which a share has half of a training row inside."""
    from models.datasets.schema import read_rows

    random = Random(seed)
    rows = [row["completion"].split() for row in read_rows(data, "demonstrations", "train")]
    return [
        " ".join([*text.split()[:8], *random.choice(rows)[4:19], *text.split()[8:16]])
        if random.random() < share
        else text
        for text in fresh(seed + 100)
    ]


def test_every_planted_row_is_found_and_nothing_in_fresh_text(data: Path) -> None:
    rates = {}
    for name, texts in (("planted", memorised(data, 5, 1.0)), ("fresh", fresh(5))):
        records = with_copied(*policy(texts), data, COPIED)
        rates[name] = bootstrap_mean(copied_flags(records, COPIED))
    assert rates["planted"].low == 1.0 and rates["fresh"].estimate == rates["fresh"].high == 0.0


def guard(candidate: list[PromptRecord], baseline: list[PromptRecord]) -> GateCheck:
    checks = judge(candidate, baseline, SETTINGS, reward_model=False).checks
    return next(check for check in checks if check.name == "copied")


def test_the_gate_refuses_a_policy_that_recites_and_lets_a_fresh_policy_pass(data: Path) -> None:
    plain = with_copied(*policy(fresh(1)), data, COPIED)
    recites = with_copied(*policy(memorised(data, 2, 0.2), right=True), data, COPIED)
    other = with_copied(*policy(fresh(2), right=True), data, COPIED)
    assert guard(recites, plain).failed and not judge(recites, plain, SETTINGS, reward_model=False).promoted
    assert not guard(other, plain).failed


def test_answers_that_were_not_measured_fail_the_guard(data: Path) -> None:
    plain = with_copied(*policy(fresh(1)), data, COPIED)
    assert guard(policy(fresh(2))[0], plain).failed


def test_the_measure_is_kept_in_the_table_and_summarised(data: Path, tmp_path: Path) -> None:
    records = with_copied(*policy(memorised(data, 4, 0.5)), data, COPIED)
    write_records(records, tmp_path / "records.parquet")
    again = read_records(tmp_path / "records.parquet")
    flags = copied_flags(again, COPIED)
    assert np.array_equal(flags, copied_flags(records, COPIED)) and 0.4 < flags.mean() < 0.6
    summary = summarise(again, ks=(1,), copied=COPIED)
    assert summary["eval/copied_samples"] == pytest.approx(flags.mean()) and summary["eval/copied_run"] >= 15
    assert "eval/copied_samples" not in summarise(again, ks=(1,))


def test_settings_that_cannot_work_are_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"gate\.copied\.run: 4 is below gate\.copied\.words, 8"):
        replace(COPIED, words=8, run=4)
    with pytest.raises(UserError, match=r"gate\.copied: the data set has neither demonstrations nor preferences"):
        with_copied(*policy(fresh(1)), tmp_path, COPIED)
