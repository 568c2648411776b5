"""Advantages normalised over the batch: values by hand, and loss and gradient of the published code."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, cast

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.method.rollout import Rollout
from models.method.scored import Scored
from models.parts.advantage.batch_normalised import BatchNormalised
from models.parts.advantage.group_relative import GroupRelative
from models.parts.objective.grpo import Grpo
from tests.support.published_losses import (
    LENGTHS,
    SIZES,
    assert_same,
    clipped_loss,
    loss_of_parts,
    mask,
    padded,
    random_round,
)
from tests.support.tiny_models import scored
from tests.support.tiny_resources import make_resources


def of_lengths(rewards: Sequence[float], sizes: Sequence[int], lengths: Sequence[int]) -> Scored:
    held = scored(torch.tensor(rewards, dtype=torch.float64), sizes)
    return replace(
        held,
        rollouts=[replace(rollout, completion=(1,) * n) for rollout, n in zip(held.rollouts, lengths, strict=True)],
    )


def rows(advantage: BatchNormalised, held: Scored, resources: Any = None) -> list[list[float]]:
    return [row.tolist() for row in advantage(resources, held).tokens]


def test_by_hand() -> None:
    """The rewards 1, 0 and 0 have 1, 2 and 1 tokens, so the mean over tokens is 1/4 and the deviation sqrt(3)/4."""
    advantages = rows(BatchNormalised(epsilon=0.0), of_lengths([1, 0, 0], [2, 1], [1, 2, 1]))
    high, low = 3 / 3**0.5, -1 / 3**0.5
    assert [value for row in advantages for value in row] == pytest.approx([high, low, low, low])


def test_against_the_group_by_hand() -> None:
    """The rewards minus their group's mean are 1/2, -1/2, 0 and 0. Each has one token: the deviation is sqrt(1/8)."""
    advantages = rows(BatchNormalised(baseline="group", epsilon=0.0), of_lengths([1, 0, 3, 3], [2, 2], [1, 1, 1, 1]))
    assert [value for row in advantages for value in row] == pytest.approx([2**0.5, -(2**0.5), 0.0, 0.0])


def published(held: Scored, log_prob: Tensor, old: Tensor, baseline: str, penalties: Tensor) -> tuple[Tensor, Tensor]:
    """Return loss and gradient with the advantage of OpenRLHF and verl: whitened returns of the reward minus the KL."""
    rewards = held.rewards.clone()
    if baseline == "group":
        rewards = (rewards.view(-1, SIZES[0]) - rewards.view(-1, SIZES[0]).mean(-1, keepdim=True)).flatten()
    earned = -padded(penalties)
    for row, length in enumerate(LENGTHS):
        earned[row, length - 1] += rewards[row]
    returns, running = torch.zeros_like(earned), torch.zeros(len(LENGTHS), dtype=torch.float64)
    for time in reversed(range(earned.shape[1])):
        running = earned[:, time] + running
        returns[:, time] = running
    mean = (returns * mask()).sum() / mask().sum()
    variance = ((returns - mean) ** 2 * mask()).sum() / mask().sum()
    return clipped_loss((returns - mean) * torch.rsqrt(variance), log_prob, old)


class Said:
    """Readings in which the policy's log-probs are those of the reference plus `gaps`, token by token."""

    def __init__(self, gaps: Tensor) -> None:
        self.gaps = list(gaps.split(LENGTHS))

    def policy(self, rollouts: Sequence[Rollout]) -> list[Tensor]:
        return self.gaps

    def reference(self, rollouts: Sequence[Rollout]) -> list[Tensor]:
        return [torch.zeros_like(row) for row in self.gaps]


@pytest.mark.parametrize(("kl", "estimator"), [(0.0, "k1"), (0.3, "k1"), (0.3, "k2"), (0.3, "k3")])
@pytest.mark.parametrize("baseline", ["none", "group"])
def test_loss_and_gradient_are_the_published_ones(
    baseline: Literal["none", "group"], kl: float, estimator: Literal["k1", "k2", "k3"]
) -> None:
    """`published` reimplements OpenRLHF's `reinforce` and `reinforce_baseline` and verl's `reinforce_plus_plus`. The
    three estimators of the KL are those of OpenRLHF."""
    held, log_prob, old = random_round()
    gaps = torch.randn(sum(LENGTHS), dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    paid = {"k1": gaps, "k2": gaps**2 / 2, "k3": (-gaps).exp() - 1 + gaps}[estimator]
    advantage = BatchNormalised(baseline=baseline, kl_in_reward=kl, kl_in_reward_estimator=estimator, epsilon=0.0)
    advantages = loss_of_parts(
        advantage, Grpo(kl=0.0), held, log_prob, old, "token", make_resources(readings=cast(Any, Said(gaps)))
    )
    assert_same(advantages, published(held, log_prob, old, baseline, kl * paid))


def test_the_scale_of_a_prompt_does_not_depend_on_its_own_deviation() -> None:
    """The rewards of two prompts differ by 1 and by 0.1. The advantages keep this ratio; GroupRelative does not."""
    held = of_lengths([1.0, 0.0, 0.1, 0.0], [2, 2], [1, 1, 1, 1])
    advantages = rows(BatchNormalised(baseline="group", epsilon=0.0), held)
    assert advantages[0][0] / advantages[2][0] == pytest.approx(10.0)
    levelled = GroupRelative(epsilon=0.0).of_completions(make_resources(), held)
    assert float(levelled[0] / levelled[2]) == pytest.approx(1.0)


def test_without_a_baseline_a_prompt_that_is_always_solved_is_trained_on_and_flat_groups_must_stay() -> None:
    advantages = rows(BatchNormalised(), of_lengths([1, 1, 0, 0], [2, 2], [1, 1, 1, 1]))
    assert advantages[0][0] == pytest.approx(1.0, abs=1e-3) and advantages[2][0] == pytest.approx(-1.0, abs=1e-3)
    assert BatchNormalised().learns_from_flat_groups and not BatchNormalised(baseline="group").learns_from_flat_groups


def test_a_batch_that_does_not_spread_has_no_advantage_and_nothing_is_infinite() -> None:
    assert rows(BatchNormalised(), of_lengths([1, 1], [2], [2, 1])) == [[0.0, 0.0], [0.0]]


def test_tokens_that_are_not_trained_on_are_no_part_of_the_statistics() -> None:
    held = of_lengths([1.0, 0.0, 50.0], [2, 1], [1, 1, 2])
    beside = replace(held.rollouts[2], trained=(False, False), source=replace(held.rollouts[2].source, origin="greedy"))
    advantages = rows(BatchNormalised(epsilon=0.0), replace(held, rollouts=[*held.rollouts[:2], beside]))
    assert [advantages[0][0], advantages[1][0]] == pytest.approx([1.0, -1.0])


def test_a_kl_without_a_reference_is_refused() -> None:
    held, *_ = random_round()
    with pytest.raises(UserError, match=r"advantage\.kl_in_reward is 0\.1, but the recipe has no reference"):
        BatchNormalised(kl_in_reward=0.1)(make_resources(), held)
