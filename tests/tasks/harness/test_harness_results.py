"""Tests of a suite's results: reading samples, means, paired differences and the guards."""

import json
import math
from pathlib import Path

import pytest

from models.base.errors import UserError
from models.evaluation.gate.suites import SuiteAnswers, SuiteGuard, SuiteScores, suite_checks
from tasks.harness.results import (
    changes_table,
    headline,
    read_inspect,
    read_lm_eval,
    read_scores,
    suite_changes,
    suite_metrics,
    write_samples,
)


def row(document: int, right: bool, *filters: str) -> list[dict[str, object]]:
    """Return the rows of lm-eval for a document, one for each filter."""
    return [
        {
            "doc_id": document, "target": "7", "arguments": {"gen_args_0": {"arg_0": f"question {document}"}},
            "resps": [["seven"]], "filtered_resps": ["7"], "filter": name, "metrics": ["exact_match"],
            "exact_match": float(right), "doc": {},
        }
        for name in filters
    ]  # fmt: skip


def scores(right: list[float], task: str = "sums", metric: str = "acc") -> SuiteScores:
    return SuiteScores({task: {metric: {str(n): value for n, value in enumerate(right)}}})


def test_samples_of_lm_eval_are_stored_and_averaged(tmp_path: Path) -> None:
    rows = [each for n in range(4) for each in row(n, n < 3, "strict", "flexible")]
    (tmp_path / "samples_0.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    write_samples(read_lm_eval(tmp_path, {"sums": "samples_0.jsonl"}), tmp_path, [["sums", "exact_match"]])
    read = read_scores(tmp_path)
    assert list(read.tasks["sums"]) == ["exact_match,strict", "exact_match,flexible"]
    assert read.tasks["sums"]["exact_match,strict"] == {"0": 1.0, "1": 1.0, "2": 1.0, "3": 0.0}
    assert read.lower_is_better == {("sums", "exact_match,strict"), ("sums", "exact_match,flexible")}
    metrics = suite_metrics(read)
    assert metrics["suite/sums/exact_match.strict"] == 0.75
    assert metrics["suite/sums/exact_match.strict_low"] < 0.75 <= metrics["suite/sums/exact_match.strict_high"]
    assert headline(read) == "sums exact_match,strict 0.750 (4 problems)"


def test_logs_of_inspect_are_read_by_their_task_and_a_failed_one_is_refused(tmp_path: Path) -> None:
    log = {
        "status": "success",
        "eval": {"task": "sums"},
        "samples": [
            {"id": n, "input": f"{n}?", "target": "1", "scores": {"match": {"value": "C" if n else "I"}}, "output": {}}
            for n in range(3)
        ],
    }
    (tmp_path / "a.json").write_text(json.dumps(log))
    write_samples(read_inspect([tmp_path / "a.json"]), tmp_path, [])
    assert read_scores(tmp_path).tasks == {"sums": {"match": {"0": 0.0, "1": 1.0, "2": 1.0}}}
    (tmp_path / "b.json").write_text(json.dumps(log | {"status": "error"}))
    with pytest.raises(UserError, match="not success"):
        read_inspect([tmp_path / "b.json"])


def test_differences_are_paired_over_the_problems() -> None:
    new, old = scores([1.0] * 6 + [0.0] * 4), scores([1.0] * 4 + [0.0] * 6)
    (change,) = suite_changes(new, old)
    assert (change.new, change.old, change.problems) == (0.6, 0.4, 10)
    assert change.change.estimate == pytest.approx(0.2) and change.change.low <= 0.2 <= change.change.high
    assert "| sums | acc | 10 | 0.6000 | 0.4000 | +0.2000 [" in changes_table("lm-eval", "champion", [change])
    with pytest.raises(UserError, match="different problems"):
        suite_changes(new, scores([1.0] * 9))


GUARDS = {"lm-eval": {"sums": SuiteGuard(metric="acc", margin=0.02)}}


def checked(candidate: SuiteScores, baseline: SuiteScores, anchor: SuiteScores | None = None) -> list[str]:
    """Return the names of the failed guards."""
    answers = {"lm-eval": SuiteAnswers(candidate, baseline, anchor)}
    checks = suite_checks(GUARDS, answers, 0.95, anchored=anchor is not None)
    return [check.name for against in checks for check in against if check.failed]


def test_a_guard_passes_equal_models_and_fails_a_worse_one_against_baseline_and_anchor() -> None:
    good, bad = scores([1.0] * 300), scores([1.0] * 200 + [0.0] * 100)
    assert checked(good, good, good) == []
    assert checked(bad, good) == ["suite_lm-eval_sums"]
    assert checked(bad, bad, good) == ["suite_lm-eval_sums_anchor"]


def test_a_task_that_was_not_measured_fails_the_guard() -> None:
    (missing,), (anchor,) = suite_checks(GUARDS, {}, 0.95, anchored=True)
    assert missing.failed and "the candidate was not measured on sums" in missing.detail and anchor.failed
    unmeasured = checked(scores([math.nan] * 3), scores([1.0] * 3))
    assert unmeasured == ["suite_lm-eval_sums"]


@pytest.mark.parametrize(
    ("measured", "message"),
    [
        (scores([0.5], metric="f1"), "has no 'acc'; it has f1"),
        (scores([3.0]), "acc is 3, not between 0 and 1"),
        (SuiteScores({"sums": {"acc": {"0": 0.5}}}, frozenset({("sums", "acc")})), "is better when it is lower"),
    ],
)
def test_a_metric_that_cannot_be_a_guard_is_refused_by_one_line(measured: SuiteScores, message: str) -> None:
    with pytest.raises(UserError, match=message):
        checked(measured, measured)
