"""The description of a flow's run with its figures and tables, which a reviewer reads first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from models.datasets.schema import table_pieces
from models.evaluation.bootstrap import Interval, bootstrap_mean, paired_bootstrap
from models.evaluation.metrics import prompt_values
from models.evaluation.records import PromptRecord
from models.evaluation.table import read_records
from models.recipes.schema import Recipe
from tasks.gate.approval import PAGE_BELOW
from tasks.pages import cost, plots, run_names
from tasks.pages.completion_traces import completion_traces
from tasks.pages.curves import first_curves
from tasks.pages.description import ExampleCompletion, RunDescription, describe_below, describe_run
from tasks.pages.side_by_side import side_by_side
from tasks.pages.timing import time_lines
from tasks.runner.step import StepResult
from tasks.steps.promote import Promotion, policy_name
from tasks.steps.validate_data import clean_folder
from tasks.tracking import records, registry, runs, tags, views
from tasks.tracking.journal import read_journal
from tasks.tracking.metrics import MetricLog
from tasks.tracking.traces import log_traces
from tasks.tracking.verdict_text import points

SHOWN = (
    "sampled_accuracy",
    "greedy_accuracy",
    "loose_accuracy",
    "pass_at_4",
    "pass_at_16",
    "maj_at_16",
    "tokens",
    "distinct_share",
    "reward_score",
)
"""Metrics in the table of models; missing ones are left out."""
CURVES = ("reward", "rollouts", "policy")
"""Groups of the fine-tuning's curves that the flow's own page shows; the rest are shown on the step's page."""


def write_review(
    parent_run: str,
    recipe: Recipe,
    promotion: Promotion,
    trained: StepResult,
    evaluations: Mapping[str, StepResult],
    validated: StepResult,
    steps: Sequence[StepResult],
    facts: Mapping[str, str],
    champion_by_hand: str = "",
) -> None:
    """Log figures, tables, metrics, samples and the description to a flow's run, and name the run after its result.

    Args:
        trained: the fine-tuning, whose curves are shown on the flow's own page too.
        evaluations: role (base, champion, candidate) -> its evaluation.
        champion_by_hand: the gate's judgement of a champion that a person set, in Markdown; "" if none waited.
    """
    measured = {role: read_records(Path(result.folder) / "records.parquet") for role, result in evaluations.items()}
    records.log_figure(
        parent_run,
        "plots/accuracy_by_level.png",
        plots.accuracy_by_level({r: _by_level(f) for r, f in measured.items()}),
    )
    records.log_metrics(parent_run, _held_out(measured) | cost.of_steps(steps)[0].metrics())
    curves = read_journal(Path(trained.folder) / "metrics.jsonl")
    records.log_figure(
        parent_run, "plots/training.png", plots.training_curves(curves, title=f"{recipe.name}: fine-tuning")
    )
    with MetricLog(parent_run) as log:
        for row in curves:
            shown = {key: value for key, value in row.metrics.items() if key.split("/")[0] in CURVES}
            log(row.step, shown | first_curves(row.metrics))
    registry.log_model_outputs(parent_run, [trained.links["model_id"]])
    problem_ids = {record.id for of_role in measured.values() for record in of_role}
    pieces = table_pieces(clean_folder(validated), "problems", "validation")
    problems = {name: row for piece in pieces for row in piece.to_pylist() if (name := str(row["id"])) in problem_ids}
    worst = _worst(measured["candidate"], problems)
    records.log_table(parent_run, "samples/side_by_side.json", side_by_side(measured, problems))
    if not promotion.reused:  # an earlier run has already logged its own
        _log_samples(parent_run, policy_name(recipe), promotion.version, measured, problems)
    name_run(parent_run, recipe, promotion, facts, measured["candidate"])
    review = RunDescription(
        outcome="unchanged" if promotion.reused else promotion.decision,
        reason=_judged_before(promotion) if promotion.reused else "",
        model=policy_name(recipe),
        version=promotion.version,
        verdict=None if promotion.reused else promotion.verdict,
        champion_by_hand=champion_by_hand,
        models={role: _shown(f, evaluations[role]) for role, f in measured.items()},
        worst=worst,
        steps=steps,
        facts=facts,
        time=time_lines(curves),
    )
    records.log_text(parent_run, PAGE_BELOW, describe_below(review))
    records.describe(parent_run, describe_run(review))


def _log_samples(
    parent_run: str,
    model: str,
    version: int,
    measured: Mapping[str, Sequence[PromptRecord]],
    problems: Mapping[str, Mapping[str, Any]],
) -> None:
    """Log a few sampled completions of each policy as traces of the run, which people can search and comment on."""
    champion = registry.facts_of(registry.version_info(model, version)).get(tags.JUDGED_AGAINST, "")
    versions = {"candidate": str(version)} | ({"champion": champion} if champion else {})
    log_traces(parent_run, completion_traces(measured, problems, versions))


def name_run(
    run_id: str, recipe: Recipe, promotion: Promotion, facts: Mapping[str, str], candidate: Sequence[PromptRecord]
) -> None:
    """Name a flow's run after its result, and set the tags and metric of the shared view of all runs."""
    record = promotion.verdict
    if promotion.reused:
        name = run_names.unchanged(promotion.version, promotion.is_champion)
    else:
        name = run_names.judged(promotion.version, record)
    runs.rename(run_id, name)
    run_tags = {
        tags.RUN_VERDICT: "nothing changed" if promotion.reused else promotion.decision,
        tags.RUN_VERSION: str(promotion.version),
        tags.RUN_DATA: facts.get("data", "")[:8],
    }
    if record.difference is not None and not promotion.reused:
        run_tags[tags.RUN_DIFFERENCE] = points(record.difference, record.metric)
    runs.set_tags(run_id, run_tags)
    records.log_metrics(run_id, {views.ACCURACY: float(prompt_values(candidate, "sampled_accuracy").mean())})


def _judged_before(promotion: Promotion) -> str:
    state = "which is the champion" if promotion.is_champion else "which is not the champion"
    return (
        f"The same weights as version {promotion.version}, {state}. It was judged in an earlier run, "
        f"{promotion.decision}: {promotion.reason}"
    )


def write_short_review(
    parent_run: str, steps: Sequence[StepResult], facts: Mapping[str, str], results: Sequence[StepResult | None]
) -> None:
    """Write the description of a flow that ends before reinforcement learning, and its steps' metrics, to its run."""
    for result in results:
        if result is not None:
            records.log_metrics(parent_run, result.metrics)
    records.log_metrics(parent_run, cost.of_steps(steps)[0].metrics())
    reason = "the recipe ends before reinforcement learning (`schedule: null`)."
    records.describe(
        parent_run, describe_run(RunDescription(outcome="trained", reason=reason, steps=steps, facts=facts))
    )


def _held_out(records: Mapping[str, list[PromptRecord]]) -> dict[str, float]:
    """Return as metrics the accuracies of each policy, and the candidate's differences to the others with intervals."""
    metrics: dict[str, float] = {}
    for name in ("sampled_accuracy", "greedy_accuracy", "loose_accuracy"):
        values = {role: prompt_values(records_of, name) for role, records_of in records.items()}
        if not all(np.isfinite(of_role).all() for of_role in values.values()):
            continue  # the verifier does not grade
        for role, of_role in values.items():
            metrics[f"verdict/{role}_{name}"] = float(of_role.mean())
            if role != "candidate":
                difference = paired_bootstrap(values["candidate"], of_role)
                metrics[f"verdict/over_{role}_{name}"] = difference.estimate
                metrics[f"verdict/over_{role}_{name}_low"] = difference.low
                metrics[f"verdict/over_{role}_{name}_high"] = difference.high
    return metrics


def _by_level(records: list[PromptRecord]) -> dict[int, Interval]:
    levels = sorted({record.level for record in records})
    return {
        level: bootstrap_mean(prompt_values([r for r in records if r.level == level], "sampled_accuracy"))
        for level in levels
    }


def _shown(records: list[PromptRecord], result: StepResult) -> dict[str, float | Any]:
    values: dict[str, float | Any] = {}
    for name in SHOWN:
        if f"eval/{name}" in result.metrics:
            values[name] = (
                bootstrap_mean(prompt_values(records, name))
                if name.endswith("_accuracy")
                else result.metrics[f"eval/{name}"]
            )
    return values


def _worst(records: list[PromptRecord], problems: Mapping[str, Mapping[str, Any]]) -> list[ExampleCompletion]:
    """Return three wrong greedy answers: first those with the highest reward model scores, as they show exploits."""
    wrong = [record for record in records if not record.greedy.correct]
    wrong.sort(key=lambda record: -np.nan_to_num(record.greedy.reward_score))
    return [
        ExampleCompletion(
            prompt=str(problems[record.id]["prompt"]),
            completion=record.greedy.text,
            expected=str(problems[record.id]["answer"]),
            score=record.greedy.reward_score,
            note=f"level {record.level}, wrong, "
            f"{sum(s.correct for s in record.samples)} of {len(record.samples)} samples right",
        )
        for record in wrong[:3]
    ]
