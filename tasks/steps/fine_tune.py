"""Step 5: fine-tuning of the policy by reinforcement learning, and the records of its inputs, curves and times."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from prefect import get_run_logger, task

from models.method.curriculum import drawn_at_most
from models.method.learner import Role
from models.method.problem import Problem
from models.method.schedule import ScheduleSettings
from models.policies.build import open_tokenizer
from models.policies.folder import hash_folder
from models.policies.teacher import ServedSettings, TeacherSettings
from models.policies.update_sparsity import changed_share_of_files
from models.reward_models.judges.settings import JudgeSettings
from models.text.end_ids import ends_of_folder
from models.text.prompt_form import PromptForm
from models.text.token_cache import CachedCodec
from models.training.learned import nothing_learned
from models.training.read_problems import read_prompts
from models.training.score import failures_of
from tasks.compute.fitting import JOURNAL, POLICY, FineTuneJob, FineTuneSections, fit_policy, watched_rounds
from tasks.compute.shared_engine import engine_place
from tasks.data.inputs import log_rows
from tasks.pages import plots, timing
from tasks.pages.cost import of_rounds
from tasks.pages.description import section, time_table
from tasks.registered.policy import PolicyFiles
from tasks.runner.caching import cached_by_key
from tasks.runner.results import CHECKPOINTS
from tasks.runner.step import StepContext, StepOutput, StepResult, run_step, token_folder
from tasks.steps.validate_data import clean_folder, example_of
from tasks.tracking import records, registry, runs, tags
from tasks.tracking.journal import JournalRow, read_journal

COLLAPSED = "collapsed"
"""Key in `StepResult.links` of a sentence on how the policy collapsed; absent if it did not."""
UNCHANGED = "unchanged"
"""Key in `StepResult.links` of a sentence on why no round changed the policy; absent if one did."""


@task(name="fine_tune", **cached_by_key)
def fine_tune(
    context: StepContext[FineTuneSections],
    validated: StepResult,
    warmed: StepResult,
    rewarded: StepResult | None,
    frozen: Mapping[Role, PolicyFiles],
) -> StepResult:
    """Fine-tune the warm-started policy with the recipe's loop; write it to `policy/` of the step's folder.

    `frozen` has the models that it is distilled from, and its judge, by role.

    If a killed run left checkpoints in the same folder, this one resumes from the newest.
    """
    recipe, home = context.recipe, context.home
    settings = recipe.schedule
    assert settings is not None

    def work(folder: Path, run_id: str) -> StepOutput:
        began = time.perf_counter()
        start, data = Path(warmed.folder) / "policy", clean_folder(validated)
        tokenizer = open_tokenizer(start, trust_remote_code=recipe.policy.trust_remote_code)
        form = PromptForm.of(recipe.policy.system, recipe.data_template)
        codec = CachedCodec(tokenizer, recipe.policy.chat, ends_of_folder(start), form, folder=token_folder(home))
        problems = read_prompts(data, codec, recipe)
        log_inputs(run_id, recipe, settings, problems, data, warmed, rewarded)
        log_teachers(run_id, frozen, recipe.teacher, recipe.judge)
        job = FineTuneJob(
            recipe=recipe,
            settings=settings,
            start=start,
            codec=codec,
            problems=problems,
            teachers={role: files.folder for role, files in frozen.items()},
            rewarded=rewarded,
            home=home,
            folder=folder,
            run_id=run_id,
        )
        with watched_rounds(settings.rounds, recipe.slots, folder, run_id) as (watchers, last_metrics):
            collapse = fit_policy(job, watchers)
        last_values, round_seconds, digest = last_metrics.last, last_metrics.seconds, hash_folder(folder / POLICY)
        curves = read_journal(folder / JOURNAL)
        records.log_figure(run_id, "plots/training.png", plots.training_curves(curves, title="Fine-tuning"))
        example = example_of(data, "problems", "prompt")
        model_id = registry.log_model(
            run_id, folder / POLICY, "policy", "text-generation", step=settings.rounds, example=example
        )
        times = log_times(run_id, curves, time.perf_counter() - began - round_seconds)
        rewards = [row.metrics["reward/total"] for row in curves if "reward/total" in row.metrics]
        headline = f"reward {_mean(rewards[:5]):.3f} to {_mean(rewards[-5:]):.3f} in {len(curves)} rounds"
        failures = failures_of(row.metrics for row in curves)
        headline += "".join(f"; {label} gave no value for {count:,} completions" for label, count in failures.items())
        changed = changed_share_of_files(start, folder / POLICY)
        findings = {COLLAPSED: str(collapse)} if collapse is not None else {}
        if not recipe.slots.advantage.trains_policy:
            headline += "; the policy kept its weights"
        elif not findings and (unchanged_reason := nothing_learned([row.metrics for row in curves], changed)):
            findings = {UNCHANGED: unchanged_reason}
        for finding in findings.values():
            headline += f"; {finding}"
            get_run_logger().warning(finding)
        return StepOutput(
            digest,
            headline,
            {f"last/{k}": v for k, v in last_values.items() if k.startswith("reward/")}
            | times
            | {f"rewards/{label}/all_failures": float(count) for label, count in failures.items()}
            | {"update/changed_share": changed},
            {"model_id": model_id} | findings,
            tokens=of_rounds(curves),
        )

    with engine_place():
        result = run_step(context, work)
    # Checkpoints are deleted only now: a run that is killed before its result is written resumes from the last one.
    shutil.rmtree(Path(result.folder) / CHECKPOINTS, ignore_errors=True)
    return result


def why_not_learned(tuned: StepResult) -> str:
    """Return in one sentence how the policy of a fine-tuning collapsed, or why it did not change; empty otherwise."""
    return tuned.links.get(COLLAPSED, "") or tuned.links.get(UNCHANGED, "")


def curves_of(tuned: StepResult) -> list[JournalRow]:
    """Read the metrics of all rounds of a fine-tuning from its journal."""
    return read_journal(Path(tuned.folder) / JOURNAL)


def log_inputs(
    run_id: str,
    recipe: FineTuneSections,
    settings: ScheduleSettings,
    problems: Sequence[Problem],
    data: Path,
    warmed: StepResult,
    rewarded: StepResult | None,
) -> None:
    """Log the inputs of a fine-tuning to its run: the rows that its rounds draw, the warm start and the reward model.

    If the rows depend on rewards (further draws, a curriculum), all rows that may be drawn are recorded.
    """
    count, rule = recipe.rollouts.prompts, settings.curriculum
    drawn_problems = drawn_at_most(problems, rule, count, settings.rounds, recipe.seed, recipe.open_ended)
    rows = (
        (problem.id, problem.prompt, problem.answer, [solution.completion for solution in problem.known])
        for problem in drawn_problems
    )
    log_rows(run_id, recipe.data_name, recipe.rollouts.reads, "train", rows, data)
    registry.log_model_inputs(run_id, [warmed.links["model_id"], *([rewarded.links["model_id"]] if rewarded else [])])
    if rewarded is not None:
        runs.set_tags(run_id, {tags.REWARD_MODEL_VERSION: rewarded.links["version"]})


def log_teachers(
    run_id: str, frozen: Mapping[Role, PolicyFiles], teacher: TeacherSettings | None, judge: JudgeSettings | None
) -> None:
    """Log the frozen models that a policy learns from: as inputs of the run if MLflow has them, and as tags."""
    if model_ids := [files.model_id for files in frozen.values() if files.model_id]:
        registry.log_model_inputs(run_id, model_ids)
    values = {tags.FROZEN[role]: files.digest for role, files in frozen.items()}
    served: dict[Role, ServedSettings | None] = {"teacher": teacher, "judge": judge}
    for role, settings in served.items():
        if settings is not None and settings.address is not None:
            values[tags.FROZEN[role]] = " ".join(filter(None, (settings.address, settings.model)))
    if values:
        runs.set_tags(run_id, values)


def log_times(run_id: str, curves: Sequence[JournalRow], outside: float) -> dict[str, float]:
    """Log the time by stage as a table, a figure and the run's description; return its main numbers as metrics.

    Args:
        curves: the journal of all rounds, including those before an interruption.
        outside: seconds of this process outside the rounds.
    """
    lines = timing.time_lines(curves, outside)
    records.log_table(run_id, timing.TABLE, timing.table_rows(lines))
    records.log_figure(run_id, "plots/time.png", plots.time_by_round(curves))
    text = section("Where the time went", time_table(lines))
    records.describe(run_id, f"## Fine-tuning\n\n{text}\n")
    return timing.time_metrics(lines)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))
