"""The trials of own completions and of verifiers: their arms load, have one budget and differ in one thing."""

import pytest

from benchmarks.claims import on_policy_trials, verifier_trials
from benchmarks.claims.toy import COMMON, Arm
from models.recipes.load import load_recipe
from models.recipes.schema import Recipe


def loaded(arm: Arm) -> Recipe:
    return load_recipe(arm.recipe, [*COMMON, "schedule.rounds=40", *arm.overrides])


ARMS = {**on_policy_trials.ARMS, "verifier, grpo": verifier_trials.GRPO, "verifier, raft": verifier_trials.RAFT}


@pytest.mark.parametrize("name", list(ARMS))
def test_every_arm_has_the_same_completions_and_updates(name: str) -> None:
    recipe = loaded(ARMS[name])
    assert recipe.schedule is not None and recipe.schedule.updates == 40
    assert recipe.largest_round * recipe.schedule.rounds == verifier_trials.COMPLETIONS


def test_arms_of_a_claim_have_one_rate_and_differ_in_objective_or_source() -> None:
    given, given_raised, own, own_raised = (
        loaded(arm)
        for arm in (
            on_policy_trials.GIVEN, on_policy_trials.GIVEN_RAISED, on_policy_trials.OWN, on_policy_trials.OWN_RAISED,
        )
    )  # fmt: skip
    assert given.objective == own.objective and given_raised.objective == own_raised.objective
    assert given.rollouts == given_raised.rollouts and own.rollouts == own_raised.rollouts
    assert given.rollouts.reads == "preferences" and own.rollouts.draws and not given.rollouts.draws
    rates = {recipe.schedule.optimiser for arm in on_policy_trials.ARMS.values() if (recipe := loaded(arm)).schedule}
    assert len(rates) == 1
