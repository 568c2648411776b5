"""Rewards under thresholds: the multipliers, the search of the thresholds, resumed runs, and refused recipes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from models.learner.distribution import MODEL_DISTRIBUTION
from models.method.learner import Learner
from models.method.problem import Problem
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout
from models.parts.rewards.shaping.lagrangian import FARTHEST, Lagrangian
from models.recipes.load import load_recipe
from models.training.score import score
from tests.support.malformed_texts import malformed
from tests.support.tiny_loops import SCHEDULE, SLOTS, Brief, new_learner, run, same_weights, save_start
from tests.support.tiny_models import scored, tiny_policy
from tests.support.tiny_resources import make_resources

ROLLOUTS = scored([0.0] * 4, [2, 2]).rollouts
HELD = Lagrangian(of=("style", "length"), thresholds=(0.5, -2.0), begin=0.5, rate=0.1, by="truth")
COMPONENTS = {
    "truth": torch.tensor([1.0, 0.0, 1.0, 0.0]),
    "style": torch.tensor([0.9, 0.9, 0.3, 0.3]),  # mean 0.6, 0.1 above the threshold
    "length": torch.tensor([-3.0, -3.0, -2.0, -2.0]),  # mean -2.5, 0.5 below the threshold
}


@dataclass(frozen=True, kw_only=True)
class Given(Reward):
    """A reward with fixed values."""

    values: tuple[float, ...] = ()

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        return torch.tensor(self.values)


def resources_with(part: Lagrangian) -> RunResources:
    policy = tiny_policy()
    companion = part.accompany(policy)
    learner = Learner(
        policy,
        torch.optim.SGD(policy.parameters()),
        None,
        None,
        None,
        MODEL_DISTRIBUTION,
        companions={"multipliers": companion},
    )
    return make_resources(learner=learner)


def after(
    part: Lagrangian, rounds: int, components: Mapping[str, Tensor] = COMPONENTS
) -> tuple[RunResources, dict[str, float]]:
    resources, watched = resources_with(part), {}
    for _ in range(rounds):
        watched = part.learn(resources, ROLLOUTS, components)
    return resources, watched


def test_a_round_by_hand() -> None:
    u = math.atanh(0.5)
    resources, watched = after(HELD, 1)
    assert watched["style"] == pytest.approx(math.tanh(u - 0.1 * 0.1))
    assert watched["length"] == pytest.approx(math.tanh(u + 0.1 * 0.5))
    assert (watched["style_beyond"], watched["length_beyond"]) == pytest.approx((0.1, -0.5))
    values = HELD.blend(resources, ROLLOUTS, COMPONENTS).tolist()
    wanted = [watched["style"] * style + watched["length"] * length for style, length in ((0.9, -3.0), (0.3, -2.0))]
    assert values == pytest.approx([wanted[0], wanted[0], wanted[1], wanted[1]], abs=1e-6)


def test_at_least_a_multiplier_never_falls_below_zero_and_equal_it_pushes_back() -> None:
    far = {**COMPONENTS, "style": torch.full((4,), 3.0)}
    for held, low, high in ((replace(HELD, form="equal"), -1.0, -0.9), (replace(HELD, form="at_least"), 0.0, 0.1)):
        _, watched = after(replace(held, rate=1.0), 60, far)
        assert low < watched["style"] < high, held.form


def test_at_rate_zero_it_is_the_weighted_sum_for_ever() -> None:
    resources, watched = after(replace(HELD, rate=0.0), 30)
    assert (watched["style"], watched["length"]) == pytest.approx((0.5, 0.5))
    expected = 0.5 * (COMPONENTS["style"] + COMPONENTS["length"])
    torch.testing.assert_close(HELD.blend(resources, ROLLOUTS, COMPONENTS), expected)


def test_a_reward_long_out_of_reach_is_let_go_of_within_the_rounds_that_its_bound_takes() -> None:
    part = replace(HELD, rate=1.0)
    resources, watched = after(part, 200)
    assert watched["length"] == pytest.approx(math.tanh(FARTHEST))
    for _ in range(8):
        watched = part.learn(resources, ROLLOUTS, {**COMPONENTS, "length": torch.full((4,), 0.0)})
    assert watched["length"] < 0


def test_only_the_policys_own_samples_count_for_the_means() -> None:
    mixed = [
        replace(each, source=replace(each.source, origin="reference" if number % 2 else "policy"))
        for number, each in enumerate(ROLLOUTS)
    ]
    odd = {**COMPONENTS, "style": torch.tensor([0.6, 99.0, 0.6, -99.0])}
    assert HELD.learn(resources_with(HELD), mixed, odd)["style_beyond"] == pytest.approx(0.1)


def test_the_multipliers_hold_a_reward_at_its_threshold() -> None:
    """The policy's mean moves towards the multiplier. With a constant weight of 1, it would move towards 1."""
    part = Lagrangian(of=("style",), thresholds=(0.7,), begin=0.9)
    resources, mean = resources_with(part), 0.0
    for _ in range(300):
        watched = part.learn(resources, ROLLOUTS, {"style": torch.full((4,), mean), "exact_answer": torch.zeros(4)})
        mean += 0.2 * (watched["style"] - mean)
    assert mean == pytest.approx(0.7, abs=1e-3)


def test_the_thresholds_are_searched_by_the_metric_over_the_second_half_of_each_trial() -> None:
    part = Lagrangian(of=("style",), thresholds=(0.0,), every=4, reach=0.5, trials=25, by="truth")
    resources = resources_with(part)
    model: Any = resources.learner.companions["multipliers"].model
    seen = []
    for number in range(140):
        threshold = model.thresholds.item()
        seen.append(threshold)
        truth = -((threshold - 1.25) ** 2) if number % 4 >= 2 else 99.0  # the first half of a trial is not read
        part.learn(resources, ROLLOUTS, {"style": torch.zeros(4), "truth": torch.full((4,), truth)})
    assert seen[:12] == [0.0] * 4 + [0.5] * 4 + [1.0] * 4
    assert seen[-1] == pytest.approx(1.25, abs=0.05) and len(set(seen[100:])) == 1


def test_in_the_loop_it_is_read_behind_the_rewards_that_it_is_made_of() -> None:
    part = replace(HELD, by="truth")
    rewards = [Given(values=tuple(values.tolist()), label=label, weight=0.0) for label, values in COMPONENTS.items()]
    made = score(resources_with(part), [*rewards, part], ROLLOUTS)
    torch.testing.assert_close(made.rewards, made.components["lagrangian"])
    assert made.watched["multipliers/style_threshold"] == 0.5 and float(made.rewards.std()) > 0


@pytest.mark.rotating(of=6)
def test_a_run_that_was_killed_ends_with_the_weights_and_thresholds_of_one_that_was_not(tmp_path: Path) -> None:
    start = save_start(tmp_path / "start")
    part = Lagrangian(of=("brief",), thresholds=(0.2,), every=2, reach=0.2, by="sevens", rate=1.0)
    slots = replace(SLOTS, rewards=[SLOTS.rewards[0], Brief(weight=0.0), part])

    def learner() -> Learner:
        made = new_learner(SCHEDULE)
        return replace(made, companions={"multipliers": part.accompany(made.policy)})

    whole, _ = run(start, tmp_path / "whole", slots=slots, learner=learner())
    run(start, tmp_path / "killed", slots=slots, learner=learner(), killed_in=5)
    again, _ = run(start, tmp_path / "killed", slots=slots, learner=learner())
    assert same_weights(whole, again)
    first, other = (each.companions["multipliers"].model.state_dict() for each in (whole, again))
    assert all(torch.equal(first[name].nan_to_num(-7.0), other[name].nan_to_num(-7.0)) for name in first)
    assert float(first["trial"][2]) == 3


def test_whatever_is_written_it_is_as_finite_as_what_it_is_made_of() -> None:
    rollouts = malformed(Problem("p", "", "7"))
    length = torch.tensor([float(len(each.text)) for each in rollouts])
    part = Lagrangian(of=("length",), thresholds=(10.0,), by="length", rate=1.0)
    resources = resources_with(part)
    part.learn(resources, rollouts, {"length": length})
    assert torch.isfinite(part.blend(resources, rollouts, {"length": length})).all()


@pytest.mark.parametrize(
    ("rewards", "said"),
    [
        ("[{name: exact_answer}, {name: lagrangian}]", "lagrangian is made of other rewards, but names none"),
        (
            "[{name: exact_answer}, {name: lagrangian, of: [cost], thresholds: [1]}, {name: cost}]",
            "no reward before lagrangian is labelled 'cost'; there are exact_answer",
        ),
        ("[{name: exact_answer}, {name: lagrangian, of: [exact_answer]}]", "of names 1 rewards, thresholds has 0"),
        (
            "[{name: exact_answer}, {name: lagrangian, of: [exact_answer], thresholds: [1], form: at_least, begin: 0}]",
            "a multiplier of form at_least lies between 0 and 1",
        ),
    ],
)
def test_a_recipe_whose_rewards_do_not_fit_is_refused_in_a_line(rewards: str, said: str) -> None:
    with pytest.raises(Exception, match=said):
        load_recipe("arithmetic", [f"rewards={rewards}"])
