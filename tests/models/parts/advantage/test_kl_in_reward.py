"""The KL penalty in the reward of group advantages: the completions and tokens that it covers, and its estimators."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.method.advantage import CompletionAdvantage
from models.method.problem import Origin
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.method.scored import Scored
from models.parts.advantage.among_samples import AmongSamples
from models.parts.advantage.greedy_baseline import GreedyBaseline
from models.parts.advantage.group_relative import GroupRelative
from models.parts.advantage.leave_one_out import LeaveOneOut
from models.parts.advantage.process_leave_one_out import ProcessLeaveOneOut
from models.parts.advantage.reward import FixedBaseline
from models.parts.shared.kl_in_reward import ESTIMATORS
from models.recipes.load import load_recipe
from tests.support.tiny_models import scored
from tests.support.tiny_resources import make_resources

KL = 0.3
REWARDS = torch.tensor([1.0, 0.0, 0.5, 2.0, 2.0], dtype=torch.float64)
SIZES = [3, 2]
LENGTHS = [2, 1, 3, 2, 4]
POLICY = [-torch.rand(n, dtype=torch.float64, generator=torch.Generator().manual_seed(n)) for n in LENGTHS]
REFERENCE = [-2 * torch.rand(n, dtype=torch.float64, generator=torch.Generator().manual_seed(9 + n)) for n in LENGTHS]
RATIOS = torch.tensor([float((mine - other).sum()) for mine, other in zip(POLICY, REFERENCE, strict=True)]).double()


@dataclass
class Said:
    """Readings with given log-probs of policy and reference, by the `id` of the rollout."""

    policies: dict[int, Tensor]
    references: dict[int, Tensor] | None

    def policy(self, rollouts: Sequence[Rollout]) -> list[Tensor]:
        return [self.policies[id(rollout)] for rollout in rollouts]

    def reference(self, rollouts: Sequence[Rollout]) -> list[Tensor] | None:
        return None if self.references is None else [self.references[id(rollout)] for rollout in rollouts]


def round_of(
    origins: tuple[Origin, ...] = ("policy",) * 5,
    trained: tuple[tuple[bool, ...] | None, ...] = (None,) * 5,
    policy: Sequence[Tensor] = POLICY,
    reference: Sequence[Tensor] | None = REFERENCE,
    rewards: Tensor = REWARDS,
    sizes: Sequence[int] = SIZES,
) -> tuple[RunResources, Scored]:
    held = scored(rewards, sizes)
    rollouts = [
        replace(rollout, completion=(1,) * len(row), source=replace(rollout.source, origin=origin), trained=flags)
        for rollout, row, origin, flags in zip(held.rollouts, policy, origins, trained, strict=True)
    ]
    said: Any = Said(
        {id(rollout): row for rollout, row in zip(rollouts, policy, strict=True)},
        None if reference is None else {id(rollout): row for rollout, row in zip(rollouts, reference, strict=True)},
    )
    return make_resources(readings=said), replace(held, rollouts=rollouts)


@pytest.mark.parametrize(
    "advantage", [GroupRelative, AmongSamples, LeaveOneOut, FixedBaseline], ids=lambda cls: cls.__name__
)
def test_the_advantage_is_that_of_rewards_which_hold_the_penalty_already(
    advantage: Callable[..., CompletionAdvantage],
) -> None:
    resources, held = round_of()
    plain = advantage().of_completions(make_resources(), replace(held, rewards=REWARDS - KL * RATIOS))
    torch.testing.assert_close(advantage(kl_in_reward=KL).of_completions(resources, held), plain)
    assert not torch.allclose(plain, advantage().of_completions(make_resources(), held))


def test_token_by_token_the_whole_penalty_is_part_of_the_outcome() -> None:
    resources, held = round_of()
    held = replace(held, token_rewards=[0.1 * row for row in POLICY])
    process = torch.stack([0.1 * row.sum() for row in POLICY])
    held = replace(held, rewards=REWARDS + process)
    advantages = ProcessLeaveOneOut(kl_in_reward=KL)(resources, held).tokens
    plain = ProcessLeaveOneOut()(make_resources(), replace(held, rewards=REWARDS - KL * RATIOS + process)).tokens
    for first, other in zip(advantages, plain, strict=True):
        torch.testing.assert_close(first, other)


def test_a_greedy_baseline_and_answers_of_the_data_are_not_penalised() -> None:
    origins: tuple[Origin, ...] = ("policy", "policy", "greedy", "policy", "greedy")
    resources, held = round_of(origins)
    penalty = KL * RATIOS * torch.tensor([1, 1, 0, 1, 0])
    advantages = GreedyBaseline(kl_in_reward=KL).of_completions(resources, held)
    torch.testing.assert_close(
        advantages, GreedyBaseline().of_completions(make_resources(), replace(held, rewards=REWARDS - penalty))
    )
    resources, held = round_of(("policy", "policy", "demonstration", "policy", "rejected"))
    torch.testing.assert_close(
        GroupRelative(kl_in_reward=KL).of_completions(resources, held),
        GroupRelative().of_completions(make_resources(), replace(held, rewards=REWARDS - penalty)),
    )


def test_only_tokens_that_the_policy_wrote_are_penalised() -> None:
    trained = ((True, False), None, (False,) * 3, None, None)
    resources, held = round_of(trained=trained)
    ratios = RATIOS.clone()
    ratios[0], ratios[2] = float(POLICY[0][0] - REFERENCE[0][0]), 0.0
    advantages = LeaveOneOut(kl_in_reward=KL).of_completions(resources, held)
    torch.testing.assert_close(
        advantages, LeaveOneOut().of_completions(make_resources(), replace(held, rewards=REWARDS - KL * ratios))
    )


def test_without_a_reference_it_is_refused_in_a_recipe_and_in_a_round(tmp_path: Path) -> None:
    resources, held = round_of(reference=None)
    with pytest.raises(UserError, match=r"advantage\.kl_in_reward is 0\.3, but the recipe has no reference"):
        LeaveOneOut(kl_in_reward=KL).of_completions(resources, held)
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(
        "advantage: {name: leave_one_out, kl_in_reward: 0.3}\nreference: {name: none}\n"
        "objective: {name: reinforce}\nselect: {name: all}"
    )
    with pytest.raises(UserError, match=r"advantage\.kl_in_reward is 0\.3, but the recipe has no reference"):
        load_recipe(recipe)


def test_dropping_flat_groups_would_drop_their_penalty_and_is_refused(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("advantage: {name: leave_one_out, kl_in_reward: 0.3}\nobjective: {name: reinforce}")
    with pytest.raises(UserError, match=r"leave_one_out is not zero .* set select\.name to all"):
        load_recipe(recipe)


def test_rloo_with_it_climbs_the_regularised_return_exactly_and_with_k3_in_the_loss_it_does_not() -> None:
    """The estimator's mean over all groups of three actions is the gradient of E[r] - kl KL(pi || ref)."""
    logits = torch.tensor([0.3, -0.2, 0.9], dtype=torch.float64, requires_grad=True)
    prior = torch.tensor([0.5, 0.1, -0.7], dtype=torch.float64).log_softmax(0)
    worth = torch.tensor([1.0, 0.0, -2.0], dtype=torch.float64)
    log_prob = logits.log_softmax(0)
    (exact,) = torch.autograd.grad(
        (log_prob.exp() * (worth - KL * (log_prob - prior))).sum(), logits, retain_graph=True
    )
    advantages, by_k3 = torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    for actions in product(range(3), repeat=3):
        drawn = torch.tensor(actions)
        chance = log_prob[drawn].sum().exp().detach()
        rows = [row.detach()[None] for row in log_prob[drawn]]
        resources, held = round_of(
            ("policy",) * 3, (None,) * 3, rows, [row[None] for row in prior[drawn]], worth[drawn], [3]
        )
        climbed = (LeaveOneOut(kl_in_reward=KL).of_completions(resources, held) * log_prob[drawn]).mean()
        advantages += chance * torch.autograd.grad(climbed, logits, retain_graph=True)[0]
        apart = prior[drawn] - log_prob[drawn]
        k3 = (
            LeaveOneOut().of_completions(make_resources(), held) * log_prob[drawn] - KL * (apart.exp() - 1 - apart)
        ).mean()
        by_k3 += chance * torch.autograd.grad(k3, logits, retain_graph=True)[0]
    torch.testing.assert_close(advantages, exact)
    assert (by_k3 - exact).norm() > 0.02 * exact.norm()


PRIOR = torch.tensor([0.5, 0.1, -0.7], dtype=torch.float64).log_softmax(0)


def climbed(estimator: Literal["k1", "k2", "k3"]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mean over all groups of three actions of RLOO's update with a penalty and no reward, and the policy's
    logits and log-probs."""
    logits = torch.tensor([0.3, -0.2, 0.9], dtype=torch.float64, requires_grad=True)
    log_prob = logits.log_softmax(0)
    total = torch.zeros(3, dtype=torch.float64)
    advantage = LeaveOneOut(kl_in_reward=KL, kl_in_reward_estimator=estimator)
    for actions in product(range(3), repeat=3):
        drawn = torch.tensor(actions)
        rows = [row.detach()[None] for row in log_prob[drawn]]
        resources, held = round_of(
            ("policy",) * 3, (None,) * 3, rows, [row[None] for row in PRIOR[drawn]], torch.zeros(3).double(), [3]
        )
        update = (advantage.of_completions(resources, held) * log_prob[drawn]).mean()
        chance = log_prob[drawn].sum().exp().detach()
        total += chance * torch.autograd.grad(update, logits, retain_graph=True)[0]
    return total, logits, log_prob


def test_k1_in_the_reward_climbs_down_the_kl_and_k3_the_difference_of_both_directions() -> None:
    for estimator in ("k1", "k3"):
        gradient, logits, log_prob = climbed(estimator)
        kl = (log_prob.exp() * (log_prob - PRIOR)).sum()
        if estimator == "k3":
            kl = kl - (PRIOR.exp() * (PRIOR - log_prob)).sum()
        torch.testing.assert_close(gradient, -KL * torch.autograd.grad(kl, logits)[0])


def test_k2_in_the_reward_is_half_the_squared_log_ratio_of_each_sample() -> None:
    gradient, logits, log_prob = climbed("k2")
    half_square = 0.5 * (log_prob - PRIOR).detach() ** 2
    expected = torch.autograd.grad((log_prob.exp() * half_square).sum(), logits)[0]
    torch.testing.assert_close(gradient, -KL * expected)


@pytest.mark.parametrize(
    ("estimator", "of"), [("k1", [2.0, -0.5]), ("k2", [2.0, 0.125]), ("k3", [math.exp(-2) + 1, math.exp(0.5) - 1.5])]
)
def test_the_estimators_of_a_token_by_hand_and_their_sum_over_a_completion(
    estimator: Literal["k1", "k2", "k3"], of: list[float]
) -> None:
    assert ESTIMATORS[estimator](torch.tensor([2.0, -0.5])).tolist() == pytest.approx(of)
    policy, reference = torch.tensor([-1.0, -1.0]), torch.tensor([-3.0, -0.5])
    resources, held = round_of(
        ("policy",) * 2, (None,) * 2, [policy, policy], [reference, policy], torch.zeros(2).double(), [2]
    )
    penalty = LeaveOneOut(kl_in_reward=KL, kl_in_reward_estimator=estimator).of_completions(resources, held)
    assert penalty.tolist() == pytest.approx([-KL * sum(of), KL * sum(of)])
