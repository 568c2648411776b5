"""Results of suites for the reader of a flow's run: metrics, a table, and one line for each suite."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tasks.harness.results import changes_table, metric_key, read_scores, suite_changes
from tasks.runner.step import StepResult
from tasks.tracking import records

TABLE = "suites.md"
"""Artifact with the paired differences of all suites."""


def log_suites(run: str, suites: Mapping[str, Mapping[str, StepResult]]) -> dict[str, str]:
    """Log how the candidate differs from base and champion in every metric of the suites.

    Metrics `over_ROLE/suite/TASK/METRIC` are differences paired over the problems, with `_low` and `_high`.

    Args:
        run: the flow's run.
        suites: role (base, champion, candidate) -> suite -> its evaluation.

    Returns:
        `suite NAME` -> one line on the candidate, for the facts of the description.

    Raises:
        UserError: two policies were measured on different problems.
    """
    metrics: dict[str, float] = {}
    lines: dict[str, list[str]] = {}
    tables: list[str] = []
    candidate = suites.get("candidate", {})
    for title, result in candidate.items():
        scores = read_scores(Path(result.folder))
        lines[f"suite {title}"] = [result.headline]
        for role in ("champion", "base"):
            other = suites.get(role, {}).get(title)
            if other is None:
                continue
            changes = suite_changes(scores, read_scores(Path(other.folder)))
            tables.append(f"## {title}: candidate and {role}\n\n{changes_table(title, role, changes)}\n")
            for each in changes:
                key = f"over_{role}/{metric_key(each.task, each.metric)}"
                metrics |= {
                    key: each.change.estimate,
                    f"{key}_low": each.change.low,
                    f"{key}_high": each.change.high,
                }
            first = {each.task: each for each in reversed(changes)}
            over = ", ".join(f"{task} {each.change:+.3f}" for task, each in reversed(first.items()))
            lines[f"suite {title}"].append(f"over the {role}: {over}")
    if tables:
        records.log_text(run, TABLE, "\n".join(tables))
        records.log_metrics(run, metrics)
    return {name: "; ".join(parts) for name, parts in lines.items()}
