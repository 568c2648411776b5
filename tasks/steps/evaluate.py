"""Step 6: measure one policy on held-out problems: the same prompts for every policy, so that they pair.

What is measured on the validation split is shown; what is measured on the gate's is kept in the step's folder for the
verdict alone: no number and no sample of it goes to a run.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from prefect import get_run_logger, task

from models.datasets.schema import Split
from models.evaluation.bootstrap import bootstrap_mean
from models.evaluation.evaluate import STAGES, evaluate
from models.evaluation.metrics import prompt_values
from models.evaluation.report import summarise
from models.evaluation.table import write_records
from models.policy.folder import check_model_folder, hash_folder
from models.policy.use import read_use
from models.recipe.schema import Recipe
from tasks import gate_split
from tasks.caching import cached_by_key
from tasks.inputs import log_rows
from tasks.open_learner import reward_scorer
from tasks.progress import stages
from tasks.prompts import longest_sequence
from tasks.run_tokens import RunTokens
from tasks.shared_engine import engine_place, lent_engine
from tasks.step import Made, StepResult, run_step
from tasks.steps.validate_data import clean_folder
from tasks.tracking import records, registry


def _called() -> str:
    from prefect.runtime import task_run

    return name_of(task_run.parameters["role"], task_run.parameters.get("split", ""))


@task(name="evaluate", task_run_name=_called, **cached_by_key)
def evaluate_policy(
    key: str,
    recipe: Recipe,
    role: str,
    folder_of_policy: Path,
    model_id: str,
    validated: StepResult,
    rewarded: StepResult | None,
    home: Path,
    parent_run: str,
    split: Split = "validation",
    warmed: StepResult | None = None,
) -> StepResult:
    """Greedy and sampled completions of a split's problems, verified and scored, in `records.parquet`.

    Args:
        role: base, candidate or champion: only for names, the result depends on the weights.
        folder_of_policy: a model folder.
        model_id: its LoggedModel, for lineage.
        split: "validation" or "gate".
        warmed: the warm start, whose tokenizer is the run's and the reward model's; None: the policy's own is.
    """
    settings = recipe.evaluation
    most, samples = (
        (recipe.gate.problems, recipe.gate.samples) if split == "gate" else (settings.problems, settings.samples)
    )

    def work(folder: Path, run_id: str) -> Made:
        check_model_folder(folder_of_policy)
        data = clean_folder(validated)
        tokens = RunTokens.read(folder_of_policy, Path(warmed.folder) / "policy" if warmed else None, recipe)
        codec = tokens.own
        problems = tokens.problems(data, split, recipe, most)
        used = log_rows(
            run_id,
            recipe.data.name,
            "problems",
            split,
            [(problem.id, problem.prompt, problem.answer) for problem in problems],
            data,
            "gate" if split == "gate" else "evaluation",
        )
        registry.log_model_inputs(run_id, [model_id, *([rewarded.links["model_id"]] if rewarded else [])])
        sampling = replace(settings.sampling(recipe.rollouts.max_tokens), samples=samples)
        use = read_use(folder_of_policy)
        longest = longest_sequence(recipe) + (0 if recipe.policy.base is None else len(use.after_prompt))
        with stages(
            f"evaluate {role}" + (" on the gate's problems" if split == "gate" else ""), ("engine", *STAGES)
        ) as begin:
            begin("engine")
            with lent_engine(
                folder_of_policy,
                recipe.engine,
                longest=longest,
                end=codec.ends,
                seed=recipe.seed,
                trust_remote_code=recipe.policy.trust_remote_code,
            ) as engine:
                scorer = tokens.scorer(reward_scorer(rewarded, recipe, home, tokens.run), problems)
                made = evaluate(engine, codec, problems, sampling, settings.seed, scorer, begin, use.after_prompt)
                found = tokens.counted(made)
        write_records(found, folder / "records.parquet")
        if split == "gate":
            headline = f"{len(found)} problems of the gate, {samples} samples each, for the verdict alone"
            asked = gate_split.problems_of(data)
            links = {"gate_split": gate_split.digest_of(asked), "gate_sketch": gate_split.sketch_of(asked)}
            return Made(hash_folder(folder), headline, {}, {"model_id": model_id, **links})
        records.log_artifact(run_id, folder / "records.parquet", "evaluation")
        metrics = summarise(found, ks=settings.ks, safety_patterns=recipe.gate.safety_patterns)
        sampled = bootstrap_mean(prompt_values(found, "sampled_accuracy"), seed=settings.seed)
        metrics |= {"eval/sampled_accuracy_low": sampled.low, "eval/sampled_accuracy_high": sampled.high}
        headline = (
            f"sampled {sampled.estimate:.1%} [{sampled.low:.1%}, {sampled.high:.1%}], "
            f"greedy {metrics['eval/greedy_accuracy']:.1%}"
        )
        get_run_logger().info(f"evaluation of the {role}: {headline}")
        measured = records.Measured(model_id, *used)
        return Made(hash_folder(folder), headline, metrics, {"model_id": model_id}, measured)

    with engine_place():
        return run_step(home, "evaluate", key, parent_run, work, name_of(role, split))


def name_of(role: str, split: str) -> str:
    """What an evaluation is called: `evaluate candidate`, `gate candidate`."""
    return f"{'gate' if split == 'gate' else 'evaluate'} {role}"
