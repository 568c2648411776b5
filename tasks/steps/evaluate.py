"""Step 6: evaluation of one policy on held-out problems, the same for every policy, so that results can be paired.

Measurements on the validation split are shown. Measurements on the gate split are kept in the step's folder for the
verdict alone: no number and no sample of them is logged to a run.
"""

from __future__ import annotations

from pathlib import Path

from prefect import get_run_logger, task

from models.base.atomic_write import write_file
from models.base.sections import of
from models.datasets.schema import Split
from models.evaluation.bootstrap import bootstrap_mean
from models.evaluation.copied import CopiedSettings, copied_flags, with_copied
from models.evaluation.metrics import prompt_values
from models.evaluation.report import summarise
from models.evaluation.samples import as_json
from models.evaluation.table import write_records
from models.evaluation.wrapped import mean_distance
from models.policies.folder import check_model_folder, hash_folder
from tasks.compute.measuring import EvaluationSections, answers, as_measured, with_start_nats
from tasks.compute.run_tokens import RunTokens
from tasks.compute.shared_engine import engine_place
from tasks.data.input_summary import INPUTS, summarise_inputs
from tasks.data.inputs import log_rows
from tasks.gate import gate_split
from tasks.pages.cost import Cost
from tasks.registered.policy import PolicyFiles, policy_of_step
from tasks.registered.reward_model import RewardModelFiles
from tasks.runner.caching import cached_by_key
from tasks.runner.step import StepContext, StepOutput, StepResult, run_step
from tasks.steps.validate_data import clean_folder
from tasks.tracking import records, registry


class ShownSections(EvaluationSections):
    """The sections of the recipe that an evaluation on the validation split reads."""

    problems: int = of("evaluation.problems")
    summarised: int = of("drift.rows")
    ks: tuple[int, ...] = of("evaluation.ks")
    safety_patterns: tuple[str, ...] = of("gate.safety_patterns")
    copied: CopiedSettings | None = of("gate.copied")


class GateSections(EvaluationSections):
    """The sections of the recipe that an evaluation on the gate's problems reads."""

    problems: int = of("gate.problems")
    samples: int = of("gate.samples")
    fluency_margin: float | None = of("gate.fluency_margin")
    copied: CopiedSettings | None = of("gate.copied")


@task(name="evaluate", **cached_by_key)
def evaluate_policy(
    context: StepContext[ShownSections | GateSections],
    policy: PolicyFiles,
    validated: StepResult,
    rewarded: RewardModelFiles | None,
    warmed: StepResult | None = None,
) -> StepResult:
    """Evaluate a policy on the validation split or the gate's problems, by greedy and sampled completions.

    They are verified, scored and written to `records.parquet`.

    On the validation split, also write a summary of the problems for this policy to `inputs.json`.

    Args:
        context: the step's; its name identifies the evaluated policy, the result depends on the weights.
        policy: the policy to measure.
        warmed: the warm start, whose tokenizer the run and the reward model use; None: the policy's own is used.
    """
    recipe = context.recipe
    split: Split = "gate" if isinstance(recipe, GateSections) else "validation"

    def work(folder: Path, run_id: str) -> StepOutput:
        check_model_folder(policy.folder)
        data = clean_folder(validated)
        tokens = RunTokens.read(policy.folder, Path(warmed.folder) / "policy" if warmed else None, recipe)
        codec = tokens.own
        problems = tokens.problems(data, split, recipe, recipe.problems)
        rows = [(problem.id, problem.prompt, problem.answer) for problem in problems]
        role = "gate" if split == "gate" else "evaluation"
        logged_rows = log_rows(run_id, recipe.data_name, "problems", split, rows, data, role)
        registry.log_model_inputs(run_id, [policy.model_id, *([rewarded.model_id] if rewarded else [])])
        plain, problems = problems, as_measured(problems, recipe, codec)
        prompt_records, _ = answers(context.name, context.home, policy, recipe, tokens, problems, rewarded)
        if isinstance(recipe, GateSections) and recipe.fluency_margin is not None and warmed is not None:
            prompt_records = with_start_nats(prompt_records, problems, policy_of_step(warmed), recipe, tokens.run)
        if recipe.copied is not None:
            prompt_records = with_copied(prompt_records, problems, data, recipe.copied)
        counted_records = tokens.counted(prompt_records)
        write_records(counted_records, folder / "records.parquet")
        cost = Cost(
            tokens_sampled=sum(
                completion.tokens for record in prompt_records for completion in (*record.samples, record.greedy)
            )
        )
        if isinstance(recipe, GateSections):
            sampling_note = f"{recipe.samples} samples each, for the verdict alone"
            headline = f"{len(counted_records)} held-out problems of {recipe.data_name}, {sampling_note}"
            if recipe.wrap is not None:
                far = mean_distance([problem.prompt for problem in plain], recipe.wrap)
                headline += f"; prompts as code ({recipe.wrap.style}, distance {far:.2f})"
            gate_problems = gate_split.problems_of(data)
            links = {
                "gate_split": gate_split.digest_of(gate_problems),
                "gate_sketch": gate_split.sketch_of(gate_problems),
            }
            return StepOutput(hash_folder(folder), headline, {}, {"model_id": policy.model_id, **links}, tokens=cost)
        records.log_artifact(run_id, folder / "records.parquet", "evaluation")
        write_file(folder / INPUTS, as_json(summarise_inputs(data, codec, recipe.summarised)))
        records.log_artifact(run_id, folder / INPUTS, "evaluation")
        metrics = summarise(
            counted_records,
            ks=recipe.ks,
            safety_patterns=recipe.safety_patterns,
            copied=recipe.copied,
            hallucination=recipe.hallucination,
        )
        sampled = bootstrap_mean(prompt_values(counted_records, "sampled_accuracy"), seed=recipe.evaluation_seed)
        metrics |= {"eval/sampled_accuracy_low": sampled.low, "eval/sampled_accuracy_high": sampled.high}
        headline = f"sampled {sampled:.1%}, greedy {metrics['eval/greedy_accuracy']:.1%}"
        if "eval/loose_accuracy" in metrics:
            loose = bootstrap_mean(prompt_values(counted_records, "loose_accuracy"), seed=recipe.evaluation_seed)
            metrics |= {"eval/loose_accuracy_low": loose.low, "eval/loose_accuracy_high": loose.high}
            headline += f", loose {loose:.1%}"
        get_run_logger().info(f"{context.name}: {headline}")
        if recipe.copied is not None:
            copies = bootstrap_mean(copied_flags(counted_records, recipe.copied), seed=recipe.evaluation_seed)
            metrics |= {"eval/copied_samples_low": copies.low, "eval/copied_samples_high": copies.high}
            headline += f", copied {copies:.1%}"
        if recipe.wrap is not None:
            metrics["eval/wrap_distance"] = mean_distance([problem.prompt for problem in plain], recipe.wrap)
        measured = records.MeasurementContext(policy.model_id, *logged_rows) if policy.model_id else None
        return StepOutput(hash_folder(folder), headline, metrics, {"model_id": policy.model_id}, measured, cost)

    with engine_place():
        return run_step(context, work)
