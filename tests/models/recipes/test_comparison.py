"""Comparisons of recipes: equal budgets, differences that are refused or allowed, and smoke runs."""

from pathlib import Path
from typing import Any

import pytest

from models.base.errors import UserError
from models.recipes.comparison import Contender, contenders
from models.recipes.load import load_recipe

ROOT = Path(__file__).resolve().parents[3]
RUN = ("grpo", "rloo")


@pytest.fixture(autouse=True)
def at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def compared(
    *paths: str,
    overrides: tuple[str, ...] = (),
    seeds: int = 2,
    metric: str = "sampled_accuracy",
    budget: int | None = None,
    smoke: bool = False,
) -> list[Contender]:
    return contenders(paths, overrides, seeds, metric, budget, smoke)


def test_every_recipe_gets_the_rounds_that_come_nearest_to_the_smallest_of_their_budgets() -> None:
    contenders = compared(
        "grpo", "dpo", "ppo"
    )  # rounds of 64 x 8, 64 x 2 and 256 x 2 completions; each recipe has 100 rounds
    assert [rollout.completions for rollout in contenders] == [12_800] * 3
    assert (
        [rollout.rounds for rollout in contenders]
        == [25, 100, 25]
        == [rollout.recipe.schedule.rounds for rollout in contenders if rollout.recipe.schedule]
    )


def test_a_budget_by_hand_is_met_within_half_a_round_and_updates_are_a_methods_own() -> None:
    grpo, topr = compared("grpo", "topr", budget=5_000)
    assert (grpo.rounds, grpo.completions, grpo.updates) == (10, 5_120, 10)
    assert (topr.rounds, topr.completions, topr.updates) == (10, 5_120, 80)


def test_every_seat_that_learns_counts_in_a_round() -> None:
    """Kuhn poker has two seats, each with its own rollout: 4 problems x 2 seats x 192 episodes."""
    assert load_recipe("self_play_kuhn").largest_round == 1536


@pytest.mark.parametrize("target", [float("nan"), float("inf")])
def test_a_target_that_is_not_finite_is_refused(target: float) -> None:
    with pytest.raises(UserError, match=f"--target {target}: the optimality gap needs a finite number"):
        contenders(RUN, (), 2, "sampled_accuracy", target=target)


def test_a_budget_below_one_round_is_refused() -> None:
    with pytest.raises(UserError, match=r"--budget 500: a round of grpo is 512 completions"):
        compared(*RUN, budget=500)
    assert [contender.rounds for contender in compared(*RUN, budget=512)] == [1, 1]
    with pytest.raises(UserError, match="--budget 0: at least one completion"):
        compared(*RUN, budget=0)


@pytest.mark.parametrize(
    ("paths", "says"),
    [
        (("grpo", "gsm8k"), 'data.name is "arithmetic" in grpo and "gsm8k" in gsm8k'),
        (("grpo", "stg"), "policy.lora is null in grpo and set in stg"),
    ],
)
def test_recipes_of_another_task_or_another_beginning_are_refused_with_the_key_and_both_values(
    paths: tuple[str, str], says: str
) -> None:
    with pytest.raises(UserError) as caught:
        compared(*paths)
    assert says in str(caught.value) and "\n" not in str(caught.value)


def written(folder: Path, text: str) -> str:
    (folder / "other.yaml").write_text(f"extends: grpo\n{text}")
    return str(folder / "other.yaml")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("evaluation: {samples: 32}", "evaluation.samples is 16 in grpo and 32 in other"),
        ("rollouts: {max_tokens: 40}", "evaluation.max_tokens is 48 in grpo and 40 in other"),
        ("warm_start: {steps: 5}", "warm_start.steps is 1100 in grpo and 5 in other"),
        ("policy: {size: {hidden: 64}}", "policy.size.hidden is 128 in grpo and 64 in other"),
    ],
)
def test_what_is_held_out_and_what_learning_begins_with_must_agree(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        compared("grpo", written(tmp_path, text))


def test_what_only_the_method_changes_may_differ(tmp_path: Path) -> None:
    same = "rollouts: {max_tokens: 40}\nevaluation: {max_tokens: 48}\npolicy: {subnetwork: {share: 0.5}}\n"
    assert len(compared("grpo", written(tmp_path, same))) == 2


@pytest.mark.parametrize(
    ("paths", "settings", "says"),
    [
        (("grpo",), {}, "needs two recipes or more"),
        (("grpo", "rloo", "recipes/policy-gradient/grpo.yaml"), {}, "grpo is named twice"),
        (RUN, {"seeds": 1}, "--seeds 1: a comparison needs 2 or more"),
        (RUN, {"seeds": 10**30}, f"--seeds {10**30}: a comparison takes 1000 at most"),
        (RUN, {"budget": 10**30}, f"--budget {10**30}: at least one completion, 4294967295 at most"),
        (RUN, {"overrides": ("seed=3",)}, "--set seed=3: a comparison sets seed itself"),
        (RUN, {"overrides": ("name=mine",)}, "--set name=mine: a comparison sets name itself"),
        (RUN, {"overrides": ("schedule=null",)}, "so it has no policy"),
        (RUN, {"metric": "sampled_acuracy"}, "--metric sampled_acuracy: it is not measured; did you mean sampled_ac"),
        (RUN, {"metric": "pass_at_8"}, "--metric pass_at_8: evaluation.ks is 1, 4, 16, evaluation.samples 16; did you"),
        (RUN, {"metric": "maj_at_1"}, "--metric maj_at_1: evaluation.ks is 1, 4, 16"),
        (RUN, {"metric": "reward"}, "did you mean reward_score"),
        (RUN, {"metric": "reward_score", "overrides": ("reward_model=null", "rewards={name: exact_answer}")},
         "--metric reward_score: it is not measured"),
        (RUN, {"metric": "beauty"}, "there are sampled_accuracy, greedy_accuracy, pass_at_1"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_before_anything_starts(
    paths: tuple[str, ...], settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(UserError) as caught:
        compared(*paths, **settings)
    assert says in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("metric", ["pass_at_4", "maj_at_16", "level_3_accuracy", "tokens", "reward_divergence"])
def test_a_metric_that_is_measured_is_taken(metric: str) -> None:
    assert len(compared(*RUN, metric=metric)) == 2


def test_in_a_smoke_run_each_recipe_is_made_small_by_itself() -> None:
    grpo, pf_ppo, dpo = compared("grpo", "pf_ppo", "dpo", smoke=True)
    assert {contender.recipe.name for contender in (grpo, pf_ppo, dpo)} == {"comparison-smoke"}
    assert [contender.name for contender in pf_ppo.recipe.select] == ["drop_flat", "rank_filter"]
    assert (
        [contender.name for contender in grpo.recipe.select]
        == [contender.name for contender in dpo.recipe.select]
        == ["drop_flat"]
    )
    assert grpo.recipe.rollouts.group_size == 4 and dpo.recipe.rollouts.name == "dataset"
    assert grpo.completions == dpo.completions == 16 and grpo.recipe.policy.size.hidden == 64


def test_what_the_user_sets_goes_on_top_of_the_smoke_run() -> None:
    assert compared(*RUN, overrides=("evaluation.problems=3",), smoke=True)[1].recipe.evaluation.problems == 3


def test_a_smoke_comparison_takes_fewer_samples_than_the_recipes_own_ks() -> None:
    for contender in compared(*RUN, overrides=("evaluation.samples=2",), smoke=True):
        assert (contender.recipe.evaluation.samples, contender.recipe.evaluation.ks) == (2, (1,))
