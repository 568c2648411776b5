"""The value of the reference: a linear head on its state at the prompt's end, fitted to the mean reward."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.packing import Sequences
from models.method.learner import Learner
from models.method.problem import Origin
from models.method.resources import RunResources
from models.parts.rewards.models.reference_value import ReferenceValue
from models.parts.rewards.shaping.of_origin import OfOrigin
from models.parts.select.positive_advantage import PositiveAdvantage
from models.training.score import score
from tests.support.device_here import DEVICE
from tests.support.tiny_models import COMPLETIONS, PROMPTS, scored, tiny_policy
from tests.support.tiny_resources import make_resources

GROUPED = Sequences([PROMPTS[0]] * 3 + [PROMPTS[2]] * 2, COMPLETIONS)
ROLLOUTS = scored([0.0] * 5, [3, 2], sequences=GROUPED).rollouts
REWARDS = {"exact_answer": torch.tensor([1.0, 0.0, 0.5, 0.25, 0.0])}


def resources_with(part: ReferenceValue, budget: int = 16384) -> RunResources:
    policy = tiny_policy()
    reference = tiny_policy(seed=3).requires_grad_(False)
    companions = {part.companion: part.accompany(policy)}
    learner = Learner(
        policy, torch.optim.SGD(policy.parameters()), reference, None, None, MODEL_DISTRIBUTION, companions=companions
    )
    return make_resources(learner=learner, token_budget=budget)


def learn_long(resources: RunResources, part: ReferenceValue, rewards: Mapping[str, Tensor]) -> dict[str, float]:
    """Train with large steps, then with small ones, until convergence; return the last metrics."""
    for rate in (1e-2, 1e-3, 1e-4):
        metrics = replace(part, learning_rate=rate, passes=300).learn(resources, ROLLOUTS, rewards)
    return metrics


@pytest.mark.parametrize("budget", [13, 16384])
def test_it_is_linear_in_the_references_state_at_the_end_of_the_prompt(budget: int) -> None:
    part = ReferenceValue()
    resources = resources_with(part, budget)
    head: Any = resources.learner.companions["reference_value"].model
    with torch.no_grad():
        head.weight.copy_(torch.randn(head.weight.shape, generator=torch.Generator().manual_seed(0)))
    plain, values = tiny_policy(seed=3), part(resources, ROLLOUTS)
    for value, rollout in zip(values, ROLLOUTS, strict=True):
        state = plain.base_model(torch.tensor([rollout.problem.tokens], device=DEVICE)).last_hidden_state[0, -1]
        torch.testing.assert_close(value, (head.weight[0] @ state + head.bias[0]).detach().cpu())


def test_it_does_not_depend_on_the_completion() -> None:
    part = ReferenceValue()
    resources = resources_with(part)
    part.learn(resources, ROLLOUTS, REWARDS)
    values = part(resources, ROLLOUTS)
    assert values[:3].tolist() == pytest.approx([float(values[0])] * 3, rel=1e-9)
    assert values[3:].tolist() == pytest.approx([float(values[3])] * 2, rel=1e-9)
    assert abs(float(values[0] - values[3])) > 1e-3


def test_it_begins_at_zero_and_becomes_the_mean_reward_of_the_prompt() -> None:
    part = ReferenceValue()
    resources = resources_with(part)
    assert part(resources, ROLLOUTS).tolist() == [0.0] * 5
    metrics = learn_long(resources, part, REWARDS)
    values = part(resources, ROLLOUTS)
    torch.testing.assert_close(values, torch.tensor([0.5] * 3 + [0.125] * 2).double(), atol=1e-3, rtol=0.0)
    least = float((REWARDS["exact_answer"] - torch.tensor([0.5] * 3 + [0.125] * 2)).square().mean())
    assert metrics["squared_error"] == pytest.approx(least, abs=1e-4)


def test_only_the_head_moves() -> None:
    part = ReferenceValue()
    resources = resources_with(part)
    assert resources.learner.reference is not None
    before = copy.deepcopy((resources.learner.policy.state_dict(), resources.learner.reference.state_dict()))
    part.learn(resources, ROLLOUTS, REWARDS)
    after = (resources.learner.policy.state_dict(), resources.learner.reference.state_dict())
    assert all(
        torch.equal(first[name], other[name]) for first, other in zip(before, after, strict=True) for name in first
    )
    assert resources.learner.companions["reference_value"].updates == 4


def test_beside_its_reward_the_sum_is_an_advantage_and_the_filter_keeps_what_is_above_the_reference() -> None:
    part = ReferenceValue(by="origin", learning_rate=0.0)
    origins: list[Origin] = ["chosen", "rejected", "rejected", "chosen", "rejected"]
    rollouts = [
        replace(rollout, source=replace(rollout.source, origin=origin))
        for rollout, origin in zip(ROLLOUTS, origins, strict=True)
    ]
    resources = resources_with(part)
    learn_long(resources, part, {"origin": torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0])})
    scored = score(resources, [OfOrigin(), part], rollouts)
    expected = torch.tensor([2 / 3, -1 / 3, -1 / 3, 0.5, -0.5])
    torch.testing.assert_close(scored.rewards, expected, atol=1e-3, rtol=0.0)
    assert PositiveAdvantage()(scored).tolist() == [0, 3]


def test_an_expected_reward_that_stands_behind_it_is_named_as_missing() -> None:
    part = ReferenceValue(by="judge")
    with pytest.raises(UserError, match="no reward before it is called judge; there are exact_answer"):
        part.learn(resources_with(part), ROLLOUTS, REWARDS)


def test_without_a_reference_it_says_that_it_needs_one() -> None:
    part = ReferenceValue()
    resources = resources_with(part)
    resources.learner.reference = None
    with pytest.raises(UserError, match="needs a reference"):
        part(resources, ROLLOUTS)
