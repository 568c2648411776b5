"""The flow that evaluates the champion again on the held-out data, so that drift of data, engine or code is noticed."""

from __future__ import annotations

from prefect import flow

from flows.runtime.data_steps import call_preparation, call_validation
from flows.runtime.frozen_policies import evaluated_with_models
from flows.runtime.notifications import notify_champion
from flows.runtime.opening import notice_champion, open_flow
from flows.runtime.parameters import Overrides, RecipeName
from flows.runtime.steps import call_step
from models.base.errors import UserError
from models.recipes.load import plain
from tasks.compute.shared_engine import shared_engine
from tasks.gate.champion_watch import NightlyMeasurements, WatchSections, lines, watch_champion
from tasks.registered.policy import registered_policy
from tasks.registered.reward_model import reward_model_of
from tasks.steps.evaluate import ShownSections, evaluate_policy
from tasks.steps.prepare_data import log_data
from tasks.steps.promote import policy_name
from tasks.tracking import by_hand, records, registry, runs, tags


@flow(name="evaluate champion", flow_run_name="evaluate champion {recipe}")
def evaluate_champion(recipe: RecipeName, overrides: Overrides = None, cluster: str | None = None) -> dict[str, float]:
    """Evaluate the champion of a recipe again, without reusing an earlier evaluation. Returns its metrics.

    Args:
        recipe: path or name of a recipe.
        overrides: `key.path=value` each.
        cluster: address of the Ray cluster on which the recipe's engines are placed; None: this machine.

    Raises:
        UserError: the recipe has no champion yet.
    """
    with open_flow("evaluate champion", recipe, overrides or []) as opened:
        name = policy_name(opened.recipe)
        noticed = notice_champion(opened.run_id, name)
        champion = registry.champion(name)
        if champion is None:
            raise UserError(f"{name} has no champion yet; `rewardflow run {recipe}` trains one")
        run = opened.run_id
        data = call_preparation(opened)
        version = data.version
        log_data(run, version, "measured on")
        judge, rewarded = reward_model_of(champion, opened.recipe)
        runs.set_tags(run, {tags.REWARD_MODEL_VERSION: judge} if judge else {})
        validated = call_validation(opened, data)
        with_models, _, _ = evaluated_with_models(opened, validated)
        inputs = (registered_policy(champion), validated, rewarded)
        sections = ShownSections(with_models.recipe)
        with shared_engine(opened.recipe.placement, cluster):
            measured = call_step(opened, evaluate_policy, sections, *inputs, refresh=True, name="evaluate champion")
        if by_hand.waiting(name) is not None:
            noticed += "\n\nIt was set by hand; the next training puts it through the gate."
        before = champion.tags.get(tags.HELDOUT_ACCURACY, "unknown")
        records.log_metrics(run, measured.metrics)
        tonight = NightlyMeasurements(measured, version, runs.param_texts(plain(opened.recipe)), judge)
        watched = watch_champion(run, champion, WatchSections(opened.recipe), tonight, opened.root)
        notify_champion(opened.home, champion, version.digest, watched, opened.page)
        worse = "worse champion" if watched.worse else "champion"
        runs.rename(run, f"v{champion.version} {worse}: {measured.headline}")
        records.describe(
            run,
            f"## Champion, version {champion.version}\n\nNow {measured.headline}; when it was judged: {before}."
            f"\n\n{lines(watched)}\n\n{noticed}\n",
        )
        return measured.metrics
