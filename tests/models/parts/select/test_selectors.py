"""The selectors: groups with spread, flat groups, and the rewards and groups of the selected completions."""

import pytest
import torch

from models.base.errors import UserError
from models.parts.select.drop_flat import DropFlat
from models.parts.select.everything import Everything
from tests.support.tiny_models import scored


def test_groups_that_spread_stay_whole_and_flat_ones_go() -> None:
    kept = DropFlat()(scored([1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.5, 0.0], [3, 2, 3, 2]))
    assert kept.tolist() == [0, 1, 2, 8, 9]


def test_floating_point_noise_is_no_signal() -> None:
    noisy = torch.tensor([0.1 + 0.2, 0.3, 0.3 + 3e-8], dtype=torch.float64)
    assert noisy.std() > 0
    assert DropFlat()(scored(noisy, [3])).tolist() == []


def test_where_the_verifier_judges_a_noisy_component_does_not_make_signal() -> None:
    verifier, model = torch.tensor([1.0, 1.0, 1.0, 0.0]), torch.tensor([0.2, 0.9, 0.5, 0.5])
    rewards = scored(verifier + model, [2, 2], {"exact_answer": verifier, "reward_model": model})
    assert DropFlat(by="exact_answer")(rewards).tolist() == [2, 3]
    assert DropFlat(by="reward_model")(rewards).tolist() == [0, 1]
    assert DropFlat()(rewards).tolist() == [0, 1, 2, 3]


def test_an_unknown_component_is_named_with_those_that_exist() -> None:
    with pytest.raises(UserError, match="no reward is called judge; there are exact_answer"):
        DropFlat(by="judge")(scored([1.0], [1], {"exact_answer": torch.ones(1)}))


def test_of_nothing_nothing_is_kept() -> None:
    assert DropFlat()(scored([], [])).tolist() == [] and Everything()(scored([], [])).tolist() == []


def test_everything_keeps_all_in_order() -> None:
    assert Everything()(scored([1.0, 1.0, 0.0], [2, 1])).tolist() == [0, 1, 2]


def test_what_is_taken_keeps_its_own_reward_components_and_group() -> None:
    whole = scored([1.0, 2.0, 3.0, 4.0], [2, 2], {"a": torch.tensor([10.0, 20.0, 30.0, 40.0])})
    taken = whole.take(torch.tensor([3, 0]))
    assert taken.rewards.tolist() == [4.0, 1.0] and taken.components["a"].tolist() == [40.0, 10.0]
    assert [rollout.problem.id for rollout in taken.rollouts] == ["p1", "p0"] and taken.groups.tolist() == [0, 1]
