"""Leave-one-out with process rewards: values by hand, groups of unequal lengths, and the exact expected gradient."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch

from models.base.errors import UserError
from models.learner.packing import Sequences
from models.method.scored import Scored
from models.parts.advantage.leave_one_out import LeaveOneOut
from models.parts.advantage.process_leave_one_out import ProcessLeaveOneOut
from models.parts.shared.token_advantages import discounted_to_go
from tests.support.tiny_models import scored
from tests.support.tiny_resources import make_resources


def round_of(outcome: Sequence[float], process: Sequence[Sequence[float]], sizes: Sequence[int]) -> Scored:
    """Return scored completions. Each has one reward for its outcome and one for every token."""
    rows = [torch.tensor(row, dtype=torch.float64) for row in process]
    rewards = torch.tensor(outcome, dtype=torch.float64) + torch.stack([row.sum() for row in rows])
    sequences = Sequences([[3]] * len(rows), [[1] * len(row) for row in rows])
    return replace(scored(rewards, sizes, sequences=sequences), token_rewards=rows)


def advantages(chosen: Scored, **settings: Any) -> list[list[float]]:
    return [row.tolist() for row in ProcessLeaveOneOut(**settings)(make_resources(), chosen).tokens]


def test_a_group_of_two_by_hand() -> None:
    chosen = round_of([1.0, 0.0], [[0.25, 0.75], [0.5, 0.0, 0.25]], [2])
    # the mean rewards per token are 0.5 and 0.25: each is the other's baseline; the outcomes differ by 1
    assert advantages(chosen) == [
        pytest.approx([0.0 + 0.5 + 1.0, 0.5 + 1.0]),
        pytest.approx([0.0 - 0.5 - 0.25 - 1.0, -0.5 - 0.25 - 1.0, -0.25 - 1.0]),
    ]


def test_what_is_to_come_counts_by_the_discount() -> None:
    chosen = round_of([0.0, 0.0], [[1.0, 2.0, 4.0], [0.0]], [2])
    assert advantages(chosen, discount=0.5)[0] == pytest.approx([1 + 1 + 1, 2 + 2, 4])
    assert advantages(chosen, discount=0.0)[0] == pytest.approx([1, 2, 4])


def test_the_two_ways_to_sum_up_agree() -> None:
    values = torch.randn(7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    slow = [float(values[place:].sum()) for place in range(7)]
    assert discounted_to_go(values, 1.0).tolist() == pytest.approx(slow)
    nearly = discounted_to_go(values, 1.0 - 1e-12)
    torch.testing.assert_close(nearly, discounted_to_go(values, 1.0))


def test_without_process_rewards_it_is_leave_one_out_at_every_token() -> None:
    chosen = round_of([1.0, 0.0, 0.5, 2.0, 1.0], [[0.0] * n for n in (2, 3, 1, 4, 2)], [3, 2])
    plain = LeaveOneOut().of_completions(make_resources(), chosen).tolist()
    actual = advantages(chosen)
    assert [len(row) for row in actual] == [2, 3, 1, 4, 2]
    assert all(row == pytest.approx([value] * len(row)) for row, value in zip(actual, plain, strict=True))


def test_a_process_reward_that_is_the_same_at_every_token_gives_no_signal_whatever_the_lengths() -> None:
    chosen = round_of([0.0] * 3, [[0.3] * 5, [0.3] * 2, [0.3]], [3])
    assert all(row == pytest.approx([0.0] * len(row), abs=1e-12) for row in advantages(chosen))


def test_groups_do_not_see_each_other_and_one_that_is_alone_learns_nothing() -> None:
    together = round_of([1.0, 0.0, 7.0], [[0.2, 0.1], [0.4], [9.0, 9.0]], [2, 1])
    apart = round_of([1.0, 0.0], [[0.2, 0.1], [0.4]], [2])
    assert advantages(together)[:2] == [pytest.approx(row) for row in advantages(apart)]
    assert advantages(together)[2] == [0.0, 0.0]


def test_of_answers_of_one_token_the_expected_update_is_the_exact_gradient_of_both_rewards_together() -> None:
    """All groups of two of three answers are enumerated. The baselines do not change the expected update."""
    logits = torch.tensor([0.3, -0.2, 0.9], dtype=torch.float64, requires_grad=True)
    process, outcome = [0.5, -1.0, 0.25], [1.0, 0.0, 0.0]
    worth = torch.tensor(process, dtype=torch.float64) + torch.tensor(outcome, dtype=torch.float64)
    (exact,) = torch.autograd.grad((logits.softmax(0) * worth).sum(), logits)
    log_prob, total = logits.log_softmax(0), torch.zeros((), dtype=torch.float64)
    for drawn in product(range(3), repeat=2):
        chosen = round_of([outcome[rollout] for rollout in drawn], [[process[rollout]] for rollout in drawn], [2])
        advantage = torch.cat(list(ProcessLeaveOneOut()(make_resources(), chosen).tokens))
        chance = log_prob[list(drawn)].detach().sum().exp()
        total = total + chance * (advantage * log_prob[list(drawn)]).mean()
    (gradient,) = torch.autograd.grad(total, logits)
    torch.testing.assert_close(gradient, exact)


def test_a_recipe_without_token_rewards_is_told_what_is_missing() -> None:
    with pytest.raises(UserError, match="needs a reward for each token"):
        ProcessLeaveOneOut()(make_resources(), scored([1.0, 0.0], [2]))


def test_whitened_advantages_have_mean_nought_and_deviation_one_over_the_tokens_of_the_round() -> None:
    chosen = round_of([1.0, 0.0, 0.5], [[0.25, 0.75], [0.5, 0.0, 0.25], [3.0]], [3])
    plain = torch.cat([torch.tensor(row) for row in advantages(chosen)])
    white = torch.cat([torch.tensor(row) for row in advantages(chosen, whiten=True)])
    torch.testing.assert_close(white, (plain - plain.mean()) / plain.std(unbiased=False), rtol=1e-3, atol=1e-3)
