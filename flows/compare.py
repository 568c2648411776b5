"""Several recipes trained on the same budget, over several seeds, and compared: which is better, and how surely."""

from __future__ import annotations

from flows.environment import prepare_environment

prepare_environment(make=True)

from pathlib import Path  # noqa: E402

from prefect import flow  # noqa: E402

from flows.opening import Opened, closed_with, git_commit, own_folder  # noqa: E402
from flows.training import Training, train_policy  # noqa: E402
from models.errors import UserError  # noqa: E402
from models.evaluation.aggregate import Standing, standings  # noqa: E402
from models.recipe.load import load_recipe, require_comparable  # noqa: E402
from tasks.comparison import Cost, write_comparison  # noqa: E402
from tasks.fine_tune import curves_of  # noqa: E402
from tasks.shared_engine import shared_engine  # noqa: E402
from tasks.tracking import records, runs, tags  # noqa: E402

EXPERIMENT = "comparison"
"""MLflow experiment of comparisons; reward models are shared by the methods, under this name."""


@flow(name="compare")
def compare(
    recipes: list[str], overrides: list[str] | None = None, seeds: int = 5, metric: str = "sampled_accuracy"
) -> tuple[str, list[Standing], list[Cost]]:
    """Train every recipe with every seed and compare a held-out metric. Nothing is registered as a policy.

    Args:
        recipes: paths or names; the first is the one that the others are compared with.
        overrides: `key.path=value` each, for all of them.
        seeds: trainings of each.
        metric: of the evaluation, such as sampled_accuracy or pass_at_4.

    Returns:
        The MLflow run, and of every recipe how it stands and what it cost.

    Raises:
        UserError: fewer than two recipes, one is wrong or trains no policy, or the metric is not measured.
    """
    require_comparable(recipes, overrides or [])
    chosen = [*(overrides or []), f"name={EXPERIMENT}"]
    with own_folder(EXPERIMENT) as home:
        facts = {tags.RECIPE: " ".join(recipes), tags.GIT_COMMIT: git_commit()}
        run = runs.open_flow_run(
            EXPERIMENT, f"compare {' '.join(Path(one).stem for one in recipes)}", facts, {"seeds": seeds}
        )
        if overrides:
            records.log_text(run, "recipe/overrides.txt", "\n".join(overrides) + "\n")
        with closed_with(run):
            scores: dict[str, list[float]] = {}
            costs: list[Cost] = []
            for recipe in recipes:
                done = [_trained(recipe, [*chosen, f"seed={seed}"], home, run) for seed in range(seeds)]
                name = Path(recipe).stem
                scores[name] = [_score(training, metric) for training in done]
                costs.append(_cost(done))
            found = standings(scores)
            write_comparison(run, metric, found, costs)
        return run, found, costs


def _trained(recipe: str, overrides: list[str], home: Path, parent: str) -> Training:
    checked = load_recipe(recipe, overrides)
    name = f"{Path(recipe).stem}, seed {checked.seed}"
    own = runs.open_step_run(parent, name, {tags.RECIPE: Path(recipe).stem, tags.SEED: str(checked.seed)})
    with closed_with(own), shared_engine():
        training = train_policy(Opened(checked, Path.cwd(), home, own, {}))
        measured = training.evaluated_candidate()
        records.log_metrics(own, {key: value for key, value in measured.metrics.items() if key.startswith("eval/")})
    return training


def _score(training: Training, metric: str) -> float:
    key = f"eval/{metric}"
    if key not in training.scores:
        known = sorted(name.removeprefix("eval/") for name in training.scores if name.startswith("eval/"))
        raise UserError(f"{metric} is not measured; there are {', '.join(known)}")
    return training.scores[key]


def _cost(done: list[Training]) -> Cost:
    """Seconds of the rounds and tokens sampled, the mean over trainings."""
    seconds, tokens = 0.0, 0.0
    for training in done:
        assert training.tuned is not None
        for row in curves_of(training.tuned):
            seconds += row.metrics.get("seconds/round", 0.0)
            tokens += row.metrics.get("speed/round", 0.0) * row.metrics.get("seconds/round", 0.0)
    return Cost(seconds / len(done), tokens / len(done))
