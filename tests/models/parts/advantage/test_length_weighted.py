"""The length-weighted baseline: values by hand, the published loss, and the least variance of the gradient."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from models.method.scored import Scored
from models.parts.advantage.group_relative import GroupRelative
from models.parts.advantage.length_weighted import LengthWeighted
from models.parts.objective.grpo import Grpo
from tests.support.published_losses import LENGTHS, SIZES, assert_same, clipped_loss, loss_of_parts, random_round
from tests.support.tiny_models import scored
from tests.support.tiny_resources import make_resources


def of_lengths(rewards: Sequence[float], sizes: Sequence[int], lengths: Sequence[int]) -> Scored:
    held = scored(torch.tensor(rewards, dtype=torch.float64), sizes)
    return replace(
        held,
        rollouts=[replace(rollout, completion=(1,) * n) for rollout, n in zip(held.rollouts, lengths, strict=True)],
    )


def test_by_hand() -> None:
    """Three tokens have reward 1 and one has reward 0, so the baseline is 3/4."""
    assert LengthWeighted().of_completions(make_resources(), of_lengths([1, 0], [2], [3, 1])).tolist() == [0.25, -0.75]


def test_of_equal_lengths_it_is_the_mean_of_the_group() -> None:
    held = of_lengths([1.0, 0.0, 0.3, 2.0, 5.0], [3, 2], [4] * 5)
    torch.testing.assert_close(
        LengthWeighted().of_completions(make_resources(), held),
        GroupRelative(scale="none").of_completions(make_resources(), held),
    )


def test_loss_and_gradient_are_the_published_ones() -> None:
    """The expected loss reimplements verl's `opo`: sum of length times score over sum of length, mean over tokens."""
    held, log_prob, old = random_round()
    size, lengths = SIZES[0], torch.tensor(LENGTHS, dtype=torch.float64)
    baselines = [
        float((lengths[at : at + size] * held.rewards[at : at + size]).sum() / lengths[at : at + size].sum())
        for at in range(0, len(LENGTHS), size)
    ]
    advantage = held.rewards - torch.tensor(baselines, dtype=torch.float64).repeat_interleave(size)
    wanted = clipped_loss(advantage[:, None], log_prob, old)
    assert_same(loss_of_parts(LengthWeighted(), Grpo(kl=0.0), held, log_prob, old, "token"), wanted)


@pytest.mark.parametrize("away", [-0.3, -0.01, 0.01, 0.3])
def test_no_other_baseline_gives_less_variance_where_the_square_of_a_gradient_grows_as_the_length(away: float) -> None:
    """The second moment of the gradient is the sum of l (r - b)^2. The mean gradient does not depend on b."""
    held = of_lengths([1.0, 0.0, 0.0, 0.7, -2.0], [5], [1, 4, 2, 9, 3])
    lengths = held.lengths.double()
    best = LengthWeighted().of_completions(make_resources(), held)
    assert float((lengths * best**2).sum()) < float((lengths * (best + away) ** 2).sum())


def test_only_tokens_that_are_trained_on_count_as_length() -> None:
    held = of_lengths([1, 0], [2], [3, 1])
    half = replace(held.rollouts[0], trained=(True, False, False))
    assert LengthWeighted().of_completions(
        make_resources(), replace(held, rollouts=[half, held.rollouts[1]])
    ).tolist() == [
        0.5,
        -0.5,
    ]
