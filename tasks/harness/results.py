"""Results of a suite: the samples of every task in one table, the means, and paired differences of two policies."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from models.base.atomic_write import replace_file, write_file
from models.base.errors import UserError
from models.evaluation.bootstrap import Interval, bootstrap_mean, paired_bootstrap
from models.evaluation.gate.checks import without_left_out
from models.evaluation.gate.suites import SuiteScores, paired_scores
from tasks.judging.answers import AnswerSet, GivenAnswer
from tasks.judging.read_answers import read_answers

SAMPLES = "samples.parquet"
"""File of the samples: task, problem, prompt, expected answer, text, and the scores as a JSON object."""
ABOUT = "suite.json"
"""File of the metrics that are better when they are lower."""


@dataclass(frozen=True)
class SuiteChange:
    """Paired difference of two policies in a metric of a task."""

    task: str
    metric: str
    new: float
    old: float
    change: Interval
    """Mean difference new - old over the same problems."""
    problems: int


def read_lm_eval(folder: Path, files: Mapping[str, str]) -> dict[str, AnswerSet]:
    """Read the samples that lm-eval wrote, by task.

    Args:
        folder: folder of the files.
        files: task -> name of its file.

    Raises:
        UserError: a file cannot be read, or a task has no samples.
    """
    return {task: read_answers(folder / name, task) for task, name in files.items()}


def read_inspect(logs: Sequence[Path]) -> dict[str, AnswerSet]:
    """Read logs of inspect-ai in JSON, by the name of their task.

    Raises:
        UserError: a log cannot be read, did not end well, or has no samples; or two are of the same task.
    """
    read: dict[str, AnswerSet] = {}
    for log in logs:
        answers = read_answers(log, log.name)
        if answers.notes:
            raise UserError(f"{answers.notes[0]}; the log is {log}")
        task = str(json.loads(log.read_text(encoding="utf-8-sig"))["eval"]["task"])
        if task in read:
            raise UserError(f"{log}: a second log of the task {task}")
        read[task] = answers
    return read


def write_samples(answers: Mapping[str, AnswerSet], folder: Path, lower: Sequence[Sequence[str]]) -> None:
    """Write the samples of all tasks, and which metrics are better when lower, into `folder`.

    Args:
        answers: task -> its samples.
        folder: folder of the step.
        lower: task and metric, without the name of a filter.
    """
    rows = [
        {
            "task": task, "problem": _id_of(answer), "prompt": answer.prompt, "expected": answer.expected,
            "text": answer.text, "scores": json.dumps(dict(answer.scores)),
        }
        for task, of_task in answers.items()
        for answer in of_task.answers
    ]  # fmt: skip
    with replace_file(folder / SAMPLES) as file:
        pd.DataFrame(rows).to_parquet(file, index=False)
    write_file(folder / ABOUT, json.dumps({"lower_is_better": [list(entry) for entry in lower]}) + "\n")


def read_scores(folder: Path) -> SuiteScores:
    """Read the scores that `write_samples` wrote; several samples of a problem are averaged.

    Raises:
        UserError: a file is missing or broken.
    """
    try:
        table = pd.read_parquet(folder / SAMPLES, columns=["task", "problem", "scores"])
        lower = {(task, metric) for task, metric in json.loads((folder / ABOUT).read_text())["lower_is_better"]}
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{folder}: the results of a suite cannot be read ({error}); run the suite again") from None
    values: dict[str, dict[str, dict[str, list[float]]]] = {}
    for task, problem, scores in table.itertuples(index=False):
        for metric, value in json.loads(scores).items():
            values.setdefault(task, {}).setdefault(metric, {}).setdefault(problem, []).append(value)
    tasks = {
        task: {
            metric: {problem: sum(of) / len(of) for problem, of in problems.items()}
            for metric, problems in metrics.items()
        }
        for task, metrics in values.items()
    }
    named = {
        (task, metric)
        for task, metrics in tasks.items()
        for metric in metrics
        if {(task, metric), (task, metric.partition(",")[0])} & lower
    }
    return SuiteScores(tasks, frozenset(named))


def suite_metrics(scores: SuiteScores) -> dict[str, float]:
    """Return the mean of every metric with its 95 % interval, by key; problems without a score are left out."""
    measured: dict[str, float] = {}
    for task, metric, values in _columns(scores):
        key = metric_key(task, metric)
        mean = bootstrap_mean(values)
        measured |= {key: mean.estimate, f"{key}_low": mean.low, f"{key}_high": mean.high}
    return measured


def headline(scores: SuiteScores) -> str:
    """Return the first metric of every task in one line."""
    shown: dict[str, str] = {}
    for task, metric, values in _columns(scores):
        shown.setdefault(task, f"{task} {metric} {values.mean():.3f} ({values.size} problems)")
    return "; ".join(shown.values()) or "no scores"


def suite_changes(new: SuiteScores, old: SuiteScores) -> list[SuiteChange]:
    """Return the paired differences of all metrics that both policies have, with 95 % intervals.

    Raises:
        UserError: they were measured on different problems.
    """
    changes = []
    for task, metrics in new.tasks.items():
        for metric in metrics:
            if metric not in old.tasks.get(task, {}):
                continue
            left, right = without_left_out(*paired_scores(task, metric, new, old))
            if left.size and np.isfinite(left).all() and np.isfinite(right).all():
                means = (float(left.mean()), float(right.mean()))
                changes.append(SuiteChange(task, metric, *means, paired_bootstrap(left, right), left.size))
    return changes


def changes_table(title: str, other: str, changes: Sequence[SuiteChange]) -> str:
    """Return paired differences as a table in Markdown.

    Args:
        title: name of the suite.
        other: the policy that the candidate is compared with: `champion`, `base`.
        changes: the differences.
    """
    head = [f"| {title} | metric | problems | candidate | {other} | difference [95 %] |", "| --- " * 6 + "|"]
    lines = [
        f"| {each.task} | {each.metric} | {each.problems} | {each.new:.4f} | {each.old:.4f} | {each.change:+.4f} |"
        for each in changes
    ]
    return "\n".join([*head, *lines])


def metric_key(task: str, metric: str) -> str:
    """Return the key of a metric of a task in the tracking store, without characters that it refuses."""
    return f"suite/{_plain(task)}/{_plain(metric)}"


def _columns(scores: SuiteScores) -> Iterator[tuple[str, str, np.ndarray]]:
    for task, metrics in scores.tasks.items():
        for metric, problems in metrics.items():
            values = np.array([value for value in problems.values() if math.isfinite(value)])
            if values.size:
                yield task, metric, values


def _plain(name: str) -> str:
    return re.sub(r"[^\w\-. ]", ".", name)


def _id_of(answer: GivenAnswer) -> str:
    return answer.problem or answer.prompt
