"""Win rates as a reward: their symmetry, their gradient, the minimax winner, and the recipe `par`.

The game is rock, paper, scissors with margins: paper beats rock by 0.8, rock beats scissors by 0.4, and scissors
beat paper by 0.6. No scalar reward agrees with this preference. The minimax winner plays each of the three in
proportion to the margin between the other two: 0.6, 0.4 and 0.8, each divided by 1.8.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.learner.packing import Sequences
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.advantage.group_relative import GroupRelative
from models.parts.rewards.shaping.win_rate import WinRate, preferences_by_log_odds, preferences_by_rank, win_rates
from models.recipes.load import load_recipe
from models.training.reward_call import call_reward
from tests.support.tiny_models import scored
from tests.support.tiny_resources import make_resources

MARGIN = torch.tensor([[0.0, -0.8, 0.4], [0.8, 0.0, -0.6], [-0.4, 0.6, 0.0]], dtype=torch.float64)
PREFERENCE = 0.5 + MARGIN / 2
WINNER = torch.tensor([0.6, 0.4, 0.8], dtype=torch.float64) / 1.8
OTHERS = ~torch.eye(3, dtype=torch.bool)


def resources(scorer: Callable[[Sequences], Tensor] | None = None) -> RunResources:
    return make_resources(scorer=scorer)


def answering(texts: Sequence[str], sizes: tuple[int, ...] = (4,), opponents: tuple[int, ...] = ()) -> list[Rollout]:
    """Make completions of problems whose answer is 7, in groups of the given sizes; `opponents` are not trained on."""
    rollouts = scored([0.0] * len(texts), sizes).rollouts
    return [
        replace(
            rollout,
            problem=replace(rollout.problem, answer="7"),
            text=text,
            trained=(False,) if number in opponents else None,
        )
        for number, (rollout, text) in enumerate(zip(rollouts, texts, strict=True))
    ]


def advantages_of_all_groups() -> tuple[Tensor, Tensor]:
    """Return every group of three plays, [27, 3], and the advantage of each play, [27, 3]."""
    groups = torch.tensor(list(product(range(3), repeat=3)))
    rewards = torch.stack([win_rates(PREFERENCE[group][:, group], OTHERS) for group in groups])
    advantages = GroupRelative(scale="none").of_completions(resources(), scored(rewards.flatten(), [3] * 27))
    return groups, advantages.view(27, 3)


def test_a_right_one_among_three_wrong_ones_wins_everything_and_they_draw_two_of_three() -> None:
    rates = WinRate()(resources(), answering(["#### 7", "#### 6", "#### 5", "none"]))
    assert rates.tolist() == pytest.approx([1.0, 1 / 3, 1 / 3, 1 / 3])


def test_groups_do_not_meet_and_one_that_is_alone_is_worth_a_half() -> None:
    rates = WinRate()(resources(), answering(["#### 7", "#### 6", "#### 7", "#### 7", "#### 6"], (2, 2, 1)))
    assert rates.tolist() == [1.0, 0.0, 0.5, 0.5, 0.5]


def test_the_reward_model_prefers_by_the_sigmoid_of_the_difference() -> None:
    odds = torch.log(torch.tensor([4.0, 1.0, 2.0], dtype=torch.float64))
    rates = WinRate(judge="reward_model")(resources(lambda sequences: odds), answering(["", "", ""], (3,)))
    assert rates.tolist() == pytest.approx([(4 / 5 + 4 / 6) / 2, (1 / 5 + 1 / 3) / 2, (2 / 6 + 2 / 3) / 2])
    assert WinRate(judge="reward_model").needs_reward_model and not WinRate().needs_reward_model


def test_against_opponents_those_trained_on_meet_only_these_and_these_only_those() -> None:
    texts = ["#### 7", "#### 6", "#### 5", "#### 7"]
    rates = WinRate(against="opponents")(resources(), answering(texts, (4,), opponents=(3,)))
    assert rates.tolist() == pytest.approx([0.5, 0.0, 0.0, 2.5 / 3])
    rates = WinRate(against="opponents")(resources(), answering(texts, (4,), opponents=(2, 3)))
    assert rates.tolist() == [0.75, 0.25, 0.25, 0.75]


def test_where_there_are_no_opponents_the_source_is_named() -> None:
    with pytest.raises(UserError, match="sample_beside_mixture"):
        WinRate(against="opponents")(resources(), answering(["#### 7", "#### 6"], (2,)))


@pytest.mark.parametrize("by", [preferences_by_rank, preferences_by_log_odds])
def test_who_wins_with_p_loses_with_one_minus_p_so_a_groups_mean_is_a_half(by: Callable[..., Tensor]) -> None:
    preferences = by(torch.tensor([0.3, -1.0, 0.3, 2.0], dtype=torch.float64))
    torch.testing.assert_close(preferences + preferences.T, torch.ones(4, 4, dtype=torch.float64))
    assert float(win_rates(preferences, ~torch.eye(4, dtype=torch.bool)).mean()) == pytest.approx(0.5)


def test_the_unscaled_group_gradient_is_the_gradient_of_the_expected_win_rate_over_a_fixed_opponent() -> None:
    logits = torch.tensor([0.9, -0.4, 0.1], dtype=torch.float64, requires_grad=True)
    policy = logits.softmax(0)
    groups, advantages = advantages_of_all_groups()
    chance = policy.detach()[groups].prod(-1)
    surrogate = (chance[:, None] * advantages * logits.log_softmax(0)[groups]).sum() / 3
    (sampled,) = torch.autograd.grad(surrogate, logits, retain_graph=True)
    (exact,) = torch.autograd.grad(policy @ PREFERENCE @ policy.detach(), logits)
    torch.testing.assert_close(sampled, exact)


def test_the_average_policy_of_self_play_is_the_minimax_winner_where_preferences_go_round() -> None:
    """The policy follows the exact expected natural gradient (exponential weights), without regularisation.

    The average iterate converges to the minimax winner; the last iterate does not.
    """
    groups, advantages = advantages_of_all_groups()
    # advantage of the first play of a group, for each pair of the other two plays, [3 own, 9 of the others]
    first, others = advantages[:, 0].view(3, 9), groups[:9, 1:]
    logits = torch.tensor([1.0, 0.0, -0.5], dtype=torch.float64)
    total, steps = torch.zeros(3, dtype=torch.float64), 10_000
    for _ in range(steps):
        policy = logits.softmax(0)
        total += policy
        logits = logits + 0.05 * (first @ policy[others].prod(-1))
    average = total / steps
    torch.testing.assert_close(average, WINNER, rtol=0, atol=0.02)
    assert float((PREFERENCE @ average).max()) < 0.505  # no play beats it
    assert float((PREFERENCE @ policy).max()) > 0.51  # the last iterate still cycles


def centred(scores: list[float], opponents: tuple[int, ...]) -> list[float]:
    """Return the reward of the recipe `par` for completions of one prompt with these scores.

    `opponents` are the positions of the reference's completions.
    """
    part = next(reward for reward in load_recipe("par").rewards if reward.needs_reward_model)
    rollouts = answering([""] * len(scores), (len(scores),), opponents)
    values: list[float] = part(
        resources(lambda sequences: torch.tensor(scores, dtype=torch.float64)), rollouts
    ).tolist()
    return values


def test_the_recipe_par_is_the_mean_sigmoid_of_the_score_less_that_of_each_answer_of_the_reference() -> None:
    rewards = centred([math.log(3.0), 0.0, 0.0, math.log(1 / 4)], opponents=(2, 3))
    assert rewards[:2] == pytest.approx([(3 / 4 + 12 / 13) / 2, (1 / 2 + 4 / 5) / 2])


def test_what_scores_as_the_reference_is_worth_a_half_and_a_shift_of_all_scores_changes_nothing() -> None:
    assert centred([5.0, 5.0], opponents=(1,))[0] == 0.5
    assert centred([2.5, -1.0, 0.5], (2,)) == pytest.approx(centred([102.5, 99.0, 100.5], (2,)))


def test_no_score_however_high_or_low_leaves_zero_to_one_and_it_is_steepest_at_the_reference() -> None:
    rewards = centred([1e30, 1e4, 1.0, 0.5, 0.0, -1e4, -1e30, 0.0], opponents=(7,))[:7]
    assert rewards == sorted(rewards, reverse=True) and rewards[0] == 1.0 and rewards[-1] == 0.0
    assert rewards[3] - rewards[4] > rewards[2] - rewards[3]


@pytest.mark.parametrize("text", ["", "7 " * 20_000, "\x00\x01\udcff", "####", "#### seven"])
@pytest.mark.parametrize("score_of_it", [3.0, math.nan, math.inf])
def test_whatever_a_completion_says_and_a_model_finds_of_it_its_worth_is_between_zero_and_one(
    text: str, score_of_it: float
) -> None:
    part = WinRate(judge="reward_model", against="opponents")
    rollouts = [*answering([text], (1,)), *answering(["#### 7"], (1,), opponents=(0,))]
    scores = torch.tensor([score_of_it, 0.0])
    given = call_reward(resources(lambda sequences: scores), part, rollouts)
    assert all(0.0 <= value <= 1.0 for value in given.values.tolist())
