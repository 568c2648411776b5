"""Small versions of recipes for smoke runs: every step runs, in seconds, and the results are not worth keeping.

A smoke run is an ordinary run with overrides: `--smoke` adds them, and `--set` is applied on top.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from models.policies.build import StageSettings
from models.recipes.load import load_recipe, plain
from models.recipes.schema import Recipe
from models.recipes.stages import stages_before
from models.recipes.teachers import all_frozen, key_of, recipe_of
from models.reward_models.trust import ReportSettings

MOST_PROMPTS, MOST_COMPLETIONS = 4, 4
MOST_TOKENS = 256
"""Largest number of tokens of a completion that is drawn; no recipe for the built-in model has more."""
KS = "evaluation.ks=[1]"
SIZE = {"hidden": 64, "layers": 1, "heads": 2, "key_value_heads": 1, "feed_forward": 64}
"""Heads of size 32, the smallest that vLLM accepts on a CPU."""


def made_small(path: str | Path, overrides: Sequence[str]) -> list[str]:
    """Return all overrides of the smoke run of the recipe at `path`: those that make it small, and `overrides` on top.

    The user's settings must fit only into the small recipe: `evaluation.samples=2` is accepted here, though the
    recipe's own evaluation.ks may contain 16.

    Raises:
        UserError: see `load_recipe`.
    """
    return [*smoke_overrides(load_recipe(path, [KS, *overrides])), *overrides]


def smoke_overrides(recipe: Recipe) -> list[str]:
    """Return overrides that make `recipe` small: a tiny policy, two steps of everything, a handful of problems.

    The name ends in `-smoke`, so that experiment and registered models are separate from those of real runs.
    """
    samples = max(2, recipe.gate.samples_needed)
    settings: dict[str, Any] = {
        "name": f"{recipe.name[:58]}-smoke",
        "engine.name": "transformers",
        "evaluation.problems": 8,
        "evaluation.samples": samples,
        "gate.problems": 8,
        "gate.samples": samples,
        "policy.precision": "float32",
    }
    if recipe.evaluation.suites:
        settings["evaluation.suites"] = []
    if recipe.policy.base is None:
        settings |= {f"policy.size.{key}": value for key, value in SIZE.items()}
    if recipe.warm_start is not None:
        settings |= {"warm_start.steps": 2, "warm_start.batch": 8}
    if recipe.reward_model is not None:
        settings |= {
            "reward_model.fit.steps": 2,
            "reward_model.fit.batch_pairs": 8,
            "reward_model.least_accuracy": 0.0,
        }
        if recipe.reward_model.strength is not None:
            settings["reward_model.strength.members"] = 2
        if recipe.reward_model.ensemble is not None:
            settings["reward_model.ensemble.members"] = 2
        if recipe.reward_model.groups is not None:
            settings["reward_model.groups.rounds"] = 1
        if recipe.reward_model.process is not None:
            settings |= {f"reward_model.process.{key}": 4 for key in ("problems", "held_out", "samples")}
            if recipe.reward_model.process.labels.needs_judge:  # an untrained judge gives no verdict
                settings["reward_model.process.labels.unread"] = 0.5
        if recipe.reward_model.pairs is not None:  # an untrained judge gives no verdict, and few completions end
            settings |= {f"reward_model.pairs.{key}": 4 for key in ("problems", "held_out", "samples")}
            settings |= {"reward_model.pairs.unread": "drawn", "reward_model.pairs.cut": True}
        if recipe.reward_model.report is not None:
            few = ReportSettings(problems=8, samples=samples, suffix=1, tried=2)
            settings["reward_model.report"] = json.dumps(asdict(few))
    if isinstance(base := recipe.policy.base, StageSettings):
        *_, stage = stages_before(recipe)
        settings["policy.size"] = "{}"  # those of the small stage
        settings["policy.base.set"] = json.dumps([*base.set, *smoke_overrides(stage)])
    for role, frozen in all_frozen(recipe).items():
        if frozen.recipe is not None:
            small = [*frozen.set, *smoke_overrides(recipe_of(frozen, recipe, role))]
            settings[f"{key_of(role)}.set"] = json.dumps(small)
    if recipe.schedule is not None:
        settings |= {"schedule.rounds": 2, "schedule.checkpoint_every": 1, "schedule.samples_every": 1}
        if recipe.schedule.curriculum.filters:
            settings["schedule.curriculum.tried"] = min(recipe.schedule.curriculum.tried, 2 * MOST_PROMPTS)
        if recipe.rollouts.draws and recipe.rollouts.max_tokens > MOST_TOKENS:
            settings |= {"rollouts.max_tokens": MOST_TOKENS, "evaluation.max_tokens": MOST_TOKENS}
        described = plain(recipe)
        settings["rollouts.prompts"] = min(recipe.rollouts.prompts, MOST_PROMPTS)
        if "group_size" in described["rollouts"]:
            # with the smallest groups most give no signal: k tries of k + 1 are always right, or always wrong
            most = max(MOST_COMPLETIONS, 2 * (recipe.advantage.least_group - 1))
            settings["rollouts.group_size"] = min(recipe.rollouts.group_size, most)
        if described["rollouts"].get("shows") == "peer":  # no peer would be right, so there would be nothing to pass on
            settings["rollouts.shows"] = "answer"
        # An untrained policy is never right: only rewards that always spread leave something to learn from.
        select: list[dict[str, Any]] = described["select"]
        spread = [selector | {"by": "total"} if selector["name"] == "drop_flat" else selector for selector in select]
        spread = [chosen | {"failed_only": False} if "failed_only" in chosen else chosen for chosen in spread]
        settings["select"] = json.dumps(spread)
        rewards: list[dict[str, Any]] = described["rewards"]
        verifying = [reward.label for reward in recipe.rewards if reward.verifies]
        asking = {reward.name for reward in recipe.rewards if reward.needs_judge}
        tossed = [made for reward in rewards for made in _tossed(reward, verifying, asking)]
        coins = [made for made in tossed if made["name"] == "coin" and made["weight"]]
        if recipe.rollouts.episodes is not None and not coins:
            tossed.append({"name": "coin"})  # environments mostly pay for success, which never occurs here
        settings["rewards"] = json.dumps([reward | {"limits": _at_once(reward, asking)} for reward in tossed])
        if recipe.advantage.critic_pretraining:
            settings["advantage.critic.pretraining"] = 0  # else two rounds train the critic alone
    return [KS, *(f"{key}={value}" for key, value in settings.items())]


def _at_once(reward: dict[str, Any], asking: Collection[str]) -> dict[str, Any]:
    """Return the reward's limits for a run of two rounds: patience 1, so that a reward that fails for a whole round is
    reported. An untrained judge gives no verdict, which does not count as a failure."""
    return {
        **(reward.get("limits") or {}),
        **({"failed_share": 1.0} if reward["name"] in asking else {}),
        "patience": 1,
    }


def _tossed(reward: dict[str, Any], verifying: Sequence[str], asking: Collection[str]) -> list[dict[str, Any]]:
    """Replace the verdict of a reward on the answer by a coin, so that the learner sees right and wrong answers,
    although an untrained policy is never right. A reward that decides in evaluations is kept in addition to the
    coin."""
    coin = {"name": "coin", "weight": reward["weight"], "label": reward["label"]}
    if reward["label"] in verifying:
        return [coin, reward | {"weight": 0.0, "label": f"{reward['label']}_verdict"}]
    if reward["name"] in asking:  # an untrained judge gives no verdict
        return [reward, coin | {"label": f"{reward['label']}_coin"}]
    if reward["name"] == "turn_rewards":  # an environment that pays for success alone pays nothing
        return [reward, coin | {"label": f"{reward['label']}_coin"}]
    if reward["name"] not in ("exact_answer", "source_value") and (reward["name"], reward.get("judge")) != (
        "win_rate",
        "exact_answer",
    ):
        return [reward]
    return [coin]
