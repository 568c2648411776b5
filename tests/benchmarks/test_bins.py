"""The exact bins: gradients by finite differences and simulation, limiting cases, and the order along the two axes."""

import numpy as np
import pytest

from benchmarks.claims.bins import (
    BEST,
    BINS,
    GIVEN,
    PairMethod,
    given,
    group_step,
    policy_logits,
    rewards,
    softmax,
    trained,
)  # fmt: skip

CHANCE = np.random.default_rng(0)
LOGITS = np.log(given()) + 0.3 * CHANCE.normal(size=BINS)
REFERENCE, WORTH = given(), rewards()


def dpo_loss(logits: np.ndarray, source: np.ndarray, beta: float) -> float:
    """Return DPO's loss over all pairs of independent draws from `source`, divided by beta."""
    implied = np.log(softmax(logits)) - np.log(REFERENCE)
    pairs = source[:, None] * source[None, :] * (WORTH[:, None] > WORTH[None, :])
    return float((pairs * np.logaddexp(0, -beta * (implied[:, None] - implied[None, :]))).sum() / beta)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_with_the_whole_negative_gradient_a_step_is_the_gradient_of_dpo(share: float) -> None:
    drawing = softmax(LOGITS)
    source = (1 - share) * REFERENCE + share * drawing
    step = PairMethod(on_policy=share, negative=1.0).step(LOGITS, drawing, REFERENCE, WORTH)
    for place in (0, 20, 55, 99):
        moved = np.eye(BINS)[place] * 1e-5
        slope = (dpo_loss(LOGITS + moved, source, 0.1) - dpo_loss(LOGITS - moved, source, 0.1)) / 2e-5
        assert step[place] == pytest.approx(-slope, rel=1e-6, abs=1e-10)


def test_without_it_and_without_beta_a_step_raises_the_likelihood_of_the_better_of_two() -> None:
    policy = softmax(LOGITS)
    step = PairMethod(on_policy=0.0, negative=0.0, beta=0.0).step(LOGITS, policy, REFERENCE, WORTH)
    below = np.array([REFERENCE[worth > WORTH].sum() for worth in WORTH])
    better = REFERENCE * below  # one of the two orders of a pair
    np.testing.assert_allclose(step, 0.5 * (better - better.sum() * policy), rtol=0, atol=1e-14)


def test_online_without_beta_a_step_is_a_policy_gradient_on_the_share_of_wins() -> None:
    policy = softmax(LOGITS)
    step = PairMethod(on_policy=1.0, negative=1.0, beta=0.0).step(LOGITS, policy, REFERENCE, WORTH)
    wins = np.array([policy[worth > WORTH].sum() - policy[worth < WORTH].sum() for worth in WORTH])
    np.testing.assert_allclose(step, 0.5 * policy * (wins - policy @ wins), rtol=0, atol=1e-14)


def test_the_group_step_is_the_gradient_of_the_expected_reward_over_its_deviation() -> None:
    step, policy = group_step(LOGITS, WORTH), softmax(LOGITS)
    deviation = np.sqrt(policy @ (WORTH - policy @ WORTH) ** 2)
    for place in (0, 20, 70):
        moved = np.eye(BINS)[place] * 1e-5
        slope = (softmax(LOGITS + moved) - softmax(LOGITS - moved)) @ WORTH / 2e-5
        assert step[place] * deviation == pytest.approx(slope, rel=1e-6, abs=1e-12)


def test_a_step_changes_no_bin_if_all_are_worth_the_same() -> None:
    equal = np.ones(BINS)
    assert not PairMethod(on_policy=0.5, negative=0.5).step(LOGITS, softmax(LOGITS), REFERENCE, equal).any()
    np.testing.assert_allclose(group_step(LOGITS, equal), 0.0, atol=1e-12)


def test_the_centre_moves_along_the_gradient_of_dpo() -> None:
    course = trained(PairMethod(on_policy=0.0, negative=1.0), 1, rate=1.0)
    losses = [dpo_loss(policy_logits(GIVEN + far), given(), 0.1) for far in (1e-4, -1e-4)]
    assert course.centre[1] - GIVEN == pytest.approx(-(losses[0] - losses[1]) / 2e-4, rel=1e-6)


def test_the_reward_rises_along_both_axes_and_half_of_one_is_enough_where_the_other_is_whole() -> None:
    grid = np.array(
        [
            [trained(PairMethod(on_policy=share, negative=weight), 200).reward[-1] for weight in (0.0, 0.5, 1.0)]
            for share in (0.0, 0.5, 1.0)
        ]
    )
    assert (np.diff(grid, axis=1) > 0).all(), grid
    assert (np.diff(grid[:, :2], axis=0) > 0).all(), grid
    assert (grid[1:, 2] > grid[0, 2]).all() and abs(grid[2, 2] - grid[1, 2]) < 0.001, grid


@pytest.mark.rotating(of=6)
def test_on_given_pairs_the_negative_gradient_does_not_stop_at_the_best_bin_and_on_own_pairs_it_does() -> None:
    offline, online = (trained(PairMethod(on_policy=share, negative=1.0), 3000) for share in (0.0, 1.0))
    assert max(offline.reward) > 0.43 and offline.centre[-1] > BINS and offline.reward[-1] < 0.1
    assert abs(online.centre[-1] - BEST) < 5 and online.reward[-1] > 0.42


def test_an_iterative_method_is_between_the_offline_and_the_online_one_without_negative_gradient() -> None:
    offline, online = (trained(PairMethod(on_policy=share, negative=0.0), 300).reward[-1] for share in (0.0, 1.0))
    iterative = trained(PairMethod(on_policy=1.0, negative=0.0, iterative=100), 300).reward[-1]
    assert offline < iterative < online


def test_the_policy_gradient_reaches_the_best_bin() -> None:
    course = trained(None, 1000)
    assert course.reward[0] < 0.01 and abs(course.centre[-1] - BEST) < 2
