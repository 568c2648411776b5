"""The flow that trains several recipes on the same budget with several seeds, and compares them with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prefect import flow

from flows.runtime import prefect_run
from flows.runtime.notifications import notify_when_stopped
from flows.runtime.opening import FlowContext, closed_with, log_recipe, own_folder
from flows.runtime.training import TrainingProgress, train_policy
from flows.servers.servers import page_address
from models.base.errors import UserError
from models.evaluation.aggregate import Standing, standings
from models.policies.threads import set_threads
from models.recipes.comparison import Contender, contenders
from models.recipes.load import digest, load_recipe, plain
from tasks.compute.shared_engine import shared_engine
from tasks.host.code_version import running_version
from tasks.host.machine import log_machine
from tasks.pages.comparison import TrainingCost, write_comparison
from tasks.steps.fine_tune import curves_of, why_not_learned
from tasks.tracking import records, runs, summaries, tags
from tasks.tracking.journal import JournalRow


@flow(name="compare")
def compare(
    recipes: list[str],
    overrides: list[str] | None = None,
    seeds: int = 5,
    metric: str = "sampled_accuracy",
    budget: int | None = None,
    smoke: bool = False,
    target: float = 1.0,
) -> tuple[str, list[Standing], list[TrainingCost], list[str]]:
    """Train every recipe with every seed and compare a held-out metric. No policy is registered.

    Args:
        recipes: paths or names; the others are compared with the first.
        overrides: `key.path=value` each, for all of them.
        seeds: trainings of each recipe.
        metric: metric of the evaluation, such as sampled_accuracy or pass_at_4.
        budget: completions of each training; None: the smallest of the recipes' own budgets.
        smoke: make every recipe small; its runs are in an experiment of their own.
        target: score that the optimality gap is measured from.

    Returns:
        The MLflow run; the standing and the cost of every recipe; and one line for every training whose policy did not
        learn, with its method, seed and reason.

    Raises:
        UserError: see models.recipes.comparison.contenders; or the data lack the metric.
    """
    chosen = contenders(recipes, overrides or [], seeds, metric, budget, smoke, target)
    experiment = chosen[0].recipe.name
    with own_folder(experiment) as home:
        given = [source.file for contender in chosen for source in contender.recipe.sources]
        code = running_version(Path.cwd(), *(contender.file for contender in chosen), given=given)
        facts = {tags.RECIPE: " ".join(contender.name for contender in chosen), tags.GIT_COMMIT: code.name}
        if code.release:
            facts[tags.RELEASE] = code.release
        if prefect := prefect_run.address():
            facts[tags.PREFECT_RUN] = prefect
        params = {
            "seeds": seeds,
            "metric": metric,
            "rounds": {contender.name: contender.rounds for contender in chosen},
        }
        run = runs.open_flow_run(
            experiment, f"compare {' '.join(contender.name for contender in chosen)}", facts, params
        )
        page = page_address(home, "mlflow") + summaries.page_of_run(run)
        prefect_run.link_to(page)
        set_threads(chosen[0].recipe.policy)
        log_machine(run, Path.cwd())
        for contender in chosen:
            log_recipe(run, contender.file, (), contender.recipe)
        if overrides:
            records.log_text(run, "recipe/overrides.txt", "\n".join(overrides) + "\n")
        with notify_when_stopped(home, f"compare {experiment}", run, page), closed_with(run):
            scores: dict[str, list[float]] = {contender.name: [] for contender in chosen}
            costs: list[TrainingCost] = []
            lost: list[str] = []
            for contender in chosen:
                done = []
                for seed in range(seeds):
                    done.append(_trained(contender, seed, home, run))
                    scores[contender.name].append(_score(done[-1], metric))
                journals = [curves_of(training.tuned) for training in done if training.tuned]
                costs.append(cost_of(contender, journals))
                lost += not_learned(contender.name, done)
            standing = standings(scores, target=target)
            write_comparison(run, metric, standing, costs, lost)
        prefect_run.describe(*summaries.name_and_note(run), page)
        return run, standing, costs, lost


def _trained(contender: Contender, seed: int, home: Path, parent: str) -> TrainingProgress:
    overrides = [*contender.overrides, f"seed={seed}"]
    recipe = load_recipe(contender.file, overrides)
    described = plain(recipe)
    facts = {tags.RECIPE: contender.name, tags.RECIPE_SHA256: digest(described), tags.SEED: str(seed)}
    code = running_version(Path.cwd(), contender.file, given=[source.file for source in recipe.sources])
    page = page_address(home, "mlflow") + summaries.page_of_run(parent)
    own = runs.open_step_run(parent, f"{contender.name}, seed {seed}", facts)
    with closed_with(own), shared_engine(recipe.placement):
        runs.log_params(own, described)
        log_recipe(own, contender.file, overrides, recipe)
        training = train_policy(FlowContext(recipe, Path.cwd(), home, own, code, {}, page))
        measured = training.evaluated_candidate()
        records.log_metrics(own, {key: value for key, value in measured.metrics.items() if key.startswith("eval/")})
    return training


def not_learned(method: str, done: Sequence[TrainingProgress]) -> list[str]:
    """Return one line for each training of a method whose policy collapsed or did not change, with its seed."""
    whys = [why_not_learned(training.tuned) if training.tuned else "" for training in done]
    return [f"{method}, seed {seed}: {why}" for seed, why in enumerate(whys) if why]


def _score(training: TrainingProgress, metric: str) -> float:
    key = f"eval/{metric}"
    if key not in training.scores:
        known = sorted(name.removeprefix("eval/") for name in training.scores if name.startswith("eval/"))
        raise UserError(f"--metric {metric}: these data do not have it; there are {', '.join(known)}")
    return training.scores[key]


def cost_of(contender: Contender, trainings: list[list[JournalRow]]) -> TrainingCost:
    """Compute the cost of one training of a method: its budget, and mean seconds and tokens over all its trainings.

    Args:
        contender: the method, with the rounds of its budget.
        trainings: the journal of each training, row by row.
    """
    rows = [row.metrics for journal in trainings for row in journal]
    count = len(trainings)
    seconds = sum(row.get("seconds/round", 0.0) for row in rows) / count
    tokens = sum(row.get("speed/round", 0.0) * row.get("seconds/round", 0.0) for row in rows) / count
    if not contender.recipe.open_ended:
        return TrainingCost(contender.rounds, contender.completions, contender.updates, seconds, tokens)
    rounds = round(len(rows) / count)  # fewer than granted: additional draws count against the budget
    completions = round(sum(row.get("rollouts/completions", 0.0) for row in rows) / count)
    return TrainingCost(rounds, completions, contender.updates * rounds // contender.rounds, seconds, tokens)
