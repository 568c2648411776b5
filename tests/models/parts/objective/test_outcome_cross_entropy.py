"""The cross-entropy of outcomes: its gradient as a leave-one-out advantage, the published loss, balanced outcomes."""

import math

import pytest
import torch
from torch import Tensor

from models.method.token_batch import TokenBatch
from models.parts.advantage.leave_one_out import LeaveOneOut
from models.parts.objective.outcome_cross_entropy import OutcomeCrossEntropy
from tests.support.tiny_batches import make_batch
from tests.support.tiny_models import scored
from tests.support.tiny_resources import make_resources

REFERENCE = torch.tensor([-1.0, -0.5, -2.0, -1.5, -0.7], dtype=torch.float64)
RIGHT = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0], dtype=torch.float64)
SIZES = [3, 2]
GROUPS = torch.tensor([0, 0, 0, 1, 1])


def batch(
    rewards: Tensor = RIGHT, groups: Tensor = GROUPS, reference: Tensor = REFERENCE, old: Tensor = REFERENCE
) -> TokenBatch:
    return make_batch(
        advantage=torch.zeros_like(rewards),
        behaviour=old,
        old=old,
        reference=reference,
        reward=rewards,
        group=groups,
    )


def gradient_of(log_prob: Tensor, seen: TokenBatch, beta: float = 0.5, balance: bool = False) -> Tensor:
    log_prob = log_prob.clone().requires_grad_()
    loss, _ = OutcomeCrossEntropy(beta=beta, balance=balance)(log_prob, seen)
    return torch.autograd.grad(loss.sum(), log_prob)[0]


def test_a_group_of_two_by_hand() -> None:
    log_prob = REFERENCE + torch.tensor([0.0, 0.0, 0.0, 2.0, -4.0], dtype=torch.float64)
    loss, watch = OutcomeCrossEntropy(beta=0.5, balance=False)(log_prob, batch())
    # second group: implied rewards 1 and -2, so scores 3 and -3: both losses are log(1 + e^-3)
    assert loss.tolist() == pytest.approx([math.log(2), math.log(1 + math.exp(-3))])
    assert float(watch["outcome_accuracy"][1]) == 1.0


def test_at_the_reference_it_is_the_policy_gradient_with_leave_one_out() -> None:
    advantage = LeaveOneOut().of_completions(make_resources(), scored(RIGHT, SIZES))
    sizes = torch.tensor([3.0, 3.0, 3.0, 2.0, 2.0], dtype=torch.float64)
    torch.testing.assert_close(gradient_of(REFERENCE, batch()), -0.5 * advantage / sizes)


def test_at_the_reference_what_is_right_goes_up_and_what_is_wrong_goes_down() -> None:
    ascent = -gradient_of(REFERENCE, batch())
    assert torch.equal(ascent > 0, RIGHT > 0.5) and (ascent != 0).all()


@pytest.mark.parametrize("seed", range(5))
def test_anywhere_the_gradient_is_the_leave_one_out_advantage_of_the_residual(seed: int) -> None:
    """The expected gradient uses the advantage part of the loop, with scores computed one by one."""
    log_prob = REFERENCE + torch.randn(5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    implied = 0.5 * (log_prob - REFERENCE)
    others = [[1, 2], [0, 2], [0, 1], [4], [3]]
    score = torch.stack([implied[i] - implied[rest].mean() for i, rest in enumerate(others)])
    advantage = LeaveOneOut().of_completions(make_resources(), scored(RIGHT - torch.sigmoid(score), SIZES))
    sizes = torch.tensor([3.0, 3.0, 3.0, 2.0, 2.0], dtype=torch.float64)
    gradient = gradient_of(log_prob, batch())
    torch.testing.assert_close(gradient, -0.5 * advantage / sizes)
    for group in range(2):  # in sum, the right ones rise and the wrong ones fall
        ascent, right = -gradient[group == GROUPS], RIGHT[group == GROUPS] > 0.5
        assert ascent[right].sum() > 0 > ascent[~right].sum()


def test_what_is_predicted_already_pushes_no_more() -> None:
    log_prob = REFERENCE + 40.0 * (2.0 * RIGHT - 1.0)
    assert gradient_of(log_prob, batch()).abs().max() < 1e-8


def test_a_group_that_is_right_or_wrong_as_a_whole_does_not_push_a_policy_that_is_its_reference() -> None:
    for reward in (0.0, 1.0):
        gradient = gradient_of(REFERENCE, batch(torch.full((5,), reward, dtype=torch.float64)))
        torch.testing.assert_close(gradient, torch.zeros(5, dtype=torch.float64))


def test_what_lifts_all_completions_of_a_prompt_alike_changes_nothing() -> None:
    log_prob = REFERENCE + torch.tensor([0.3, -1.0, 0.2, 0.5, -0.4], dtype=torch.float64)
    lifted = log_prob + torch.tensor([5.0, 5.0, 5.0, -2.0, -2.0], dtype=torch.float64)
    objective = OutcomeCrossEntropy()
    torch.testing.assert_close(objective(log_prob, batch())[0], objective(lifted, batch())[0])


def test_a_reward_outside_of_zero_and_one_counts_as_the_nearer_of_both() -> None:
    log_prob = REFERENCE + torch.tensor([0.3, -1.0, 0.2, 0.5, -0.4], dtype=torch.float64)
    outside = batch(RIGHT + 0.3 * (2.0 * RIGHT - 1.0))
    torch.testing.assert_close(OutcomeCrossEntropy()(log_prob, outside)[0], OutcomeCrossEntropy()(log_prob, batch())[0])


def published_loss(log_prob: Tensor, old: Tensor, outcomes: Tensor, group_size: int) -> Tensor:
    """Return the cross-entropy of each group as in the published code: beta 1, anchored at the policy of the round,
    leave-one-out scores, and weights n / (classes * count) where a group has both outcomes."""
    losses = []
    for start in range(0, len(outcomes), group_size):
        part = slice(start, start + group_size)
        reward = log_prob[part] - old[part]
        score = reward - (reward.sum() - reward) / (group_size - 1)
        labels = outcomes[part]
        both = 0 < labels.sum() < group_size
        weights = [group_size / (2 * float((labels == label).sum())) if both else 1.0 for label in labels]
        chance = 1.0 / (1.0 + (-score).exp())
        terms = [
            -w * (label * p.log() + (1 - label) * (1 - p).log())
            for w, label, p in zip(weights, labels, chance, strict=True)
        ]
        losses.append(torch.stack(terms).mean())
    return torch.stack(losses)


def test_by_default_it_is_the_published_loss_against_the_policy_of_the_round_with_both_outcomes_balanced() -> None:
    noise = torch.Generator().manual_seed(3)
    outcomes = torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    log_prob, old, reference = (-3.0 * torch.rand(12, dtype=torch.float64, generator=noise) for _ in range(3))
    seen = batch(outcomes, torch.arange(12) // 4, reference, old)
    leaf, other = log_prob.clone().requires_grad_(), log_prob.clone().requires_grad_()
    loss, wanted = OutcomeCrossEntropy()(leaf, seen)[0], published_loss(other, old, outcomes, 4)
    torch.testing.assert_close(loss, wanted)
    torch.testing.assert_close(
        torch.autograd.grad(loss.sum(), leaf)[0], torch.autograd.grad(wanted.sum(), other)[0], rtol=1e-12, atol=1e-12
    )


def test_balanced_the_right_ones_and_the_wrong_ones_of_a_prompt_push_with_the_same_force() -> None:
    """At the reference, the one right completion of three rises as much as both wrong ones fall together."""
    gradient = gradient_of(REFERENCE, batch(), balance=True)
    plain = gradient_of(REFERENCE, batch())
    assert float(gradient[0]) == pytest.approx(-float(gradient[1] + gradient[2]))
    assert float(gradient[0]) != pytest.approx(float(plain[0]))


def test_only_the_reference_as_the_anchor_needs_one() -> None:
    elsewhere = batch(reference=REFERENCE - 1.0 + 0.5 * torch.arange(5))
    assert not OutcomeCrossEntropy().needs_reference and OutcomeCrossEntropy(anchor="reference").needs_reference
    log_prob = REFERENCE + 0.1
    torch.testing.assert_close(
        OutcomeCrossEntropy()(log_prob, elsewhere)[0], OutcomeCrossEntropy()(log_prob, batch())[0]
    )
    held = OutcomeCrossEntropy(anchor="reference")
    assert not torch.allclose(held(log_prob, elsewhere)[0], held(log_prob, batch())[0])
