"""The main flow: data, validation, warm start, reward model, reinforcement learning, evaluation, promotion.

A step whose inputs, settings and code are unchanged is not run again; its result of the last time is taken.
"""

from __future__ import annotations

from flows.environment import prepare_environment

prepare_environment(make=True)  # Prefect, MLflow and vLLM read their settings when they are imported

import time  # noqa: E402
from dataclasses import dataclass, field  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from prefect import flow  # noqa: E402

from flows.opening import Opened, open_flow  # noqa: E402
from flows.steps import Called, call_cached, call_validation  # noqa: E402
from models.recipe.load import plain  # noqa: E402
from tasks.description import Step  # noqa: E402
from tasks.evaluate import evaluate_policy  # noqa: E402
from tasks.fine_tune import fine_tune  # noqa: E402
from tasks.fit_reward_model import reward_model  # noqa: E402
from tasks.prepare_data import log_data, prepare_data  # noqa: E402
from tasks.promote import Promotion, policy_name, promote  # noqa: E402
from tasks.review import write_review, write_short_review  # noqa: E402
from tasks.shared_engine import shared_engine  # noqa: E402
from tasks.step import StepResult, content_key  # noqa: E402
from tasks.tracking import registry, runs, tags  # noqa: E402
from tasks.upload_reports import upload_reports  # noqa: E402
from tasks.warm_start import warm_start  # noqa: E402


@dataclass
class Outcome:
    """What a run of the flow leaves for whoever started it."""

    run_id: str
    steps: list[Step] = field(default_factory=list)
    promotion: Promotion | None = None
    """None where the recipe ends before reinforcement learning."""
    model: str = ""
    """Registered name of the policies."""


@flow(name="train", flow_run_name="train {recipe}", validate_parameters=True)
def train(recipe: str, overrides: list[str] | None = None, refresh: bool = False) -> Outcome:
    """Run a recipe from data to promoted model.

    Args:
        recipe: path or name of a recipe.
        overrides: `key.path=value` each.
        refresh: run every step again, cached or not.
    """
    with open_flow("train", recipe, overrides or []) as opened:
        outcome, validated = run_steps(opened, refresh)
        if opened.recipe.reports is not None:
            upload_reports(opened.recipe.reports, opened.recipe.name, outcome.run_id, validated)
        return outcome


def run_steps(opened: Opened, refresh: bool) -> tuple[Outcome, StepResult]:
    """The seven steps, one after the other. Returns the outcome and the result of the validation."""
    recipe, home, run = opened.recipe, opened.home, opened.run_id
    sections: dict[str, Any] = plain(recipe)
    outcome = Outcome(run, model=policy_name(recipe))

    started = time.perf_counter()
    prepared, version, unchanged = prepare_data(recipe, opened.root, home, run)
    outcome.steps.append(Step("data", time.perf_counter() - started, unchanged, prepared.headline))
    runs.set_tags(run, {tags.DATA_REVISION: version.revision})
    log_data(run, version, "training")

    def step(name: str, task: Any, *inputs: Any, show: str | None = None, **arguments: Any) -> StepResult:
        return noted(show or name, call_cached(task, content_key(name, *inputs), home, run, refresh, **arguments))

    def noted(show: str, called: Called) -> StepResult:
        outcome.steps.append(Step(show, called.seconds, called.reused, called.result.headline))
        return called.result

    policy, engine, seed = sections["policy"], sections["engine"], recipe.seed
    validated = noted("validate", call_validation(opened, version, refresh))
    warmed = step(
        "warm_start",
        warm_start,
        validated.digest,
        policy,
        sections["warm_start"],
        seed,
        recipe=recipe,
        validated=validated,
    )
    rewarded = None
    if recipe.reward_model is not None:
        rewarded = step(
            "reward_model", reward_model, validated.digest, warmed.digest, sections["reward_model"], policy["chat"],
            policy["precision"], seed, recipe.name, recipe=recipe, validated=validated, warmed=warmed,
        )  # fmt: skip
    if recipe.schedule is None:
        write_short_review(run, outcome.steps, opened.facts | {"data": version.digest}, [validated, warmed, rewarded])
        return outcome, validated
    loop = [
        sections[name] for name in ("rollouts", "rewards", "select", "advantage", "objective", "reference", "schedule")
    ]
    reward_digest = rewarded.digest if rewarded else None
    trained = step(
        "fine_tune", fine_tune, validated.digest, warmed.digest, reward_digest, policy, engine, loop, seed,
        recipe=recipe, validated=validated, warmed=warmed, rewarded=rewarded,
    )  # fmt: skip

    def evaluated(role: str, folder: Path, digest: str, model_id: str) -> StepResult:
        inputs = (
            validated.digest,
            digest,
            reward_digest,
            sections["evaluation"],
            engine,
            policy,
            loop[0],
            sections["gate"]["safety_patterns"],
        )
        return step(
            "evaluate", evaluate_policy, *inputs, show=f"evaluate {role}",
            recipe=recipe, role=role, folder_of_policy=folder, model_id=model_id,
            validated=validated, rewarded=rewarded,
        )  # fmt: skip

    with shared_engine():
        evaluations = {
            "base": evaluated("base", Path(warmed.folder) / "policy", warmed.digest, warmed.links["model_id"]),
            "candidate": evaluated(
                "candidate", Path(trained.folder) / "policy", trained.digest, trained.links["model_id"]
            ),
        }
        champion = registry.champion(outcome.model)
        if champion is not None and champion.tags.get(tags.WEIGHTS_SHA256) != trained.digest:
            folder = registry.fetch(f"models:/{outcome.model}@{registry.CHAMPION}")
            evaluations["champion"] = evaluated(
                "champion", folder, champion.tags.get(tags.WEIGHTS_SHA256, ""), champion.model_id
            )
    started = time.perf_counter()
    outcome.promotion = promote(
        content_key("promote", run), recipe, trained, rewarded, evaluations["base"], evaluations["candidate"],
        evaluations.get("champion"), champion, home, run,
    )  # fmt: skip
    promotion = outcome.promotion
    outcome.steps.append(Step("promote", time.perf_counter() - started, promotion.reused, promotion.result.headline))
    write_review(
        run, recipe, promotion, trained, evaluations, validated, outcome.steps, opened.facts | {"data": version.digest}
    )
    return outcome, validated
