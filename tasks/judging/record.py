"""The MLflow run of a comparison: its numbers, its page and its JSON."""

from __future__ import annotations

from tasks.gate.judgement import numbers
from tasks.judging.report import as_html, as_json, headline, notes
from tasks.judging.verdict import Judgement
from tasks.pages.description import cell, gate_table, table
from tasks.tracking import records, runs, tags

EXPERIMENT = "judge"
"""Experiment of all comparisons."""
FOLDER = "judgement"
"""Folder of the run's artifacts."""


def record(judgement: Judgement) -> str:
    """Record a judgement as a run of the configured tracking store, and return the run's id."""
    sides = {"champion": judgement.measured.champion, "candidate": judgement.measured.candidate}
    sources = {role: side.answers.source for role, side in sides.items()}
    params = {
        **sources,
        **{f"{role}_digest": side.answers.digest for role, side in sides.items()},
        "metric": judgement.metric,
        "verifier": judgement.verifier,
        "problems": judgement.problems,
        "ledger": judgement.ledger,
        "guards": dict(judgement.settings.guards),
    }
    difference = f"{judgement.metric} {judgement.verdict.difference:+.3f}"
    facts = {tags.RUN_VERDICT: judgement.decision.replace("_", " "), tags.RUN_DIFFERENCE: difference}
    run = runs.open_flow_run(EXPERIMENT, f"{sources['candidate']} against {sources['champion']}", facts, params)
    status: runs.Status = "FAILED"
    try:
        records.log_metrics(run, _metrics(judgement))
        records.log_text(run, f"{FOLDER}/judgement.json", as_json(judgement))
        records.log_text(run, f"{FOLDER}/judgement.html", as_html(judgement))
        records.describe(run, _description(judgement))
        status = "FINISHED"
    finally:
        runs.close_run(run, status)
    return run


def _metrics(judgement: Judgement) -> dict[str, float]:
    return numbers(judgement.verdict) | {
        f"{role}/{line.name}": value
        for line in judgement.metrics
        for role, value in (("champion", line.champion.estimate), ("candidate", line.candidate.estimate))
    }


def _description(judgement: Judgement) -> str:
    rows = [
        (cell(line.name), f"{line.champion:.3f}", f"{line.candidate:.3f}", f"{line.difference:+.3f}")
        for line in judgement.metrics
    ]
    parts = [
        f"## {cell(headline(judgement))}",
        *map(cell, notes(judgement)),
        table(("metric", "champion", "candidate", "difference"), rows),
        gate_table(judgement.verdict.checks),
    ]
    return "\n\n".join(parts) + "\n"
