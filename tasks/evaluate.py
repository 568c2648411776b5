"""Step 6: measure one policy on the held-out problems: the same prompts for every policy, so that they pair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import get_run_logger, task

from models.evaluation.bootstrap import bootstrap_mean
from models.evaluation.evaluate import STAGES, evaluate
from models.evaluation.metrics import prompt_values
from models.evaluation.report import summarise
from models.evaluation.table import write_records
from models.policy.folder import check_model_folder, hash_folder, load_tokenizer
from models.recipe.schema import Recipe
from models.text.encoding import Codec
from tasks.caching import cached_by_key
from tasks.open_learner import reward_scorer
from tasks.progress import stages
from tasks.prompts import longest_sequence, read_problems
from tasks.shared_engine import engine_place, lent_engine
from tasks.step import Made, StepResult, run_step
from tasks.tracking import records, registry
from tasks.validate_data import clean_folder


@task(name="evaluate", task_run_name="evaluate {role}", **cached_by_key)
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
) -> StepResult:
    """Greedy and sampled completions of the held-out problems, verified and scored, in `records.parquet`.

    Args:
        role: base, candidate or champion: only for names, the result depends on the weights.
        folder_of_policy: a model folder.
        model_id: its LoggedModel, for lineage.
    """
    slots: Any = recipe
    settings = recipe.evaluation

    def work(folder: Path, run_id: str) -> Made:
        check_model_folder(folder_of_policy)
        data = clean_folder(validated)
        codec = Codec(load_tokenizer(folder_of_policy), recipe.policy.chat)
        problems = read_problems(data, codec, "test", recipe, settings.problems)
        records.log_dataset(
            run_id, f"{recipe.data.name}/clean", validated.digest[:36], str(data), "evaluation", len(problems)
        )
        registry.log_model_inputs(run_id, [model_id, *([rewarded.links["model_id"]] if rewarded else [])])
        sampling = settings.sampling(slots.rollouts.max_tokens)
        longest = longest_sequence(recipe)
        with stages(f"evaluate {role}", ("engine", *STAGES)) as begin:
            begin("engine")
            with lent_engine(
                folder_of_policy,
                recipe.engine,
                longest=longest,
                end=codec.end,
                seed=recipe.seed,
                trust_remote_code=recipe.policy.trust_remote_code,
            ) as engine:
                scorer = reward_scorer(rewarded, recipe, home)
                found = evaluate(engine, codec, problems, sampling, settings.seed, scorer, begin)
        write_records(found, folder / "records.parquet")
        records.log_artifact(run_id, folder / "records.parquet", "evaluation")
        metrics = summarise(found, ks=settings.ks, safety_patterns=recipe.gate.safety_patterns)
        sampled = bootstrap_mean(prompt_values(found, "sampled_accuracy"), seed=settings.seed)
        metrics |= {"eval/sampled_accuracy_low": sampled.low, "eval/sampled_accuracy_high": sampled.high}
        headline = (
            f"sampled {sampled.estimate:.1%} [{sampled.low:.1%}, {sampled.high:.1%}], "
            f"greedy {metrics['eval/greedy_accuracy']:.1%}"
        )
        get_run_logger().info(f"evaluation of the {role}: {headline}")
        measured = records.Measured(model_id, f"{recipe.data.name}/clean", validated.digest[:36])
        return Made(hash_folder(folder), headline, metrics, {"model_id": model_id}, measured)

    with engine_place():
        return run_step(home, "evaluate", key, parent_run, work)
