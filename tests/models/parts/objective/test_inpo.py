"""INPO's loss: by hand, IPO as a limit, mirror-descent steps, and the equilibrium of the regularised game."""

import pytest
import torch
from torch import Tensor

from models.parts.objective.inpo import Inpo
from models.parts.objective.ipo import Ipo
from tests.support.enumerable_games import (
    ORDERED,
    PREFERENCE,
    REFERENCE,
    batch_of_pairs,
    held_equilibrium,
    mean_gradient_of_pairs,
    mixed,
)
from tests.support.tiny_batches import make_batch

ETA, SHARE = 0.5, 0.4
TAU = ETA * SHARE
START = torch.tensor([-1.0, 0.5, 1.0], dtype=torch.float64).log_softmax(0)


def minimised(old: Tensor, steps: int = 150) -> Tensor:
    """Minimise the expected loss of a round that begins with `old` by gradient descent; return log-probs, [3]."""
    logits = old
    for _ in range(steps):
        logits = logits - 0.7 * mean_gradient_of_pairs(Inpo(eta=ETA, reference_share=SHARE), logits, old, old)
    return logits.log_softmax(0)


def stepped(old: Tensor) -> Tensor:
    """Return one step of mirror descent from its closed form, log-probs [3]."""
    return (mixed(old, SHARE) + PREFERENCE @ old.exp() / ETA).log_softmax(0)


def test_a_pair_by_hand() -> None:
    nothing = torch.zeros(2, dtype=torch.float64)
    batch = make_batch(
        advantage=nothing,
        behaviour=nothing,
        old=torch.tensor([-2.0, -1.0], dtype=torch.float64),
        reference=torch.tensor([-3.0, -4.0], dtype=torch.float64),
        pairs=torch.tensor([[1, 0]]),
    )
    log_prob = torch.tensor([[-0.5, -2.5]], dtype=torch.float64, requires_grad=True)
    loss, watch = Inpo(eta=0.25, reference_share=0.25)(log_prob, batch)
    # better: -0.5 + 0.75 + 1.0 = 1.25; worse: -2.5 + 1.5 + 0.75 = -0.25; h = 1.5, the target is 2
    assert loss.tolist() == [0.25] and watch["pair_margin"].tolist() == [1.5]
    assert watch["ratio_better"].tolist() == [3.5] and watch["ratio_worse"].tolist() == [0.5]
    loss.sum().backward()
    assert log_prob.grad is not None
    assert log_prob.grad.tolist() == [[-1.0, 1.0]]


def test_with_a_share_of_1_it_is_ipo_whatever_the_round_began_with() -> None:
    log_prob = START[ORDERED]
    ours, _ = Inpo(eta=0.3, reference_share=1.0)(log_prob, batch_of_pairs(old=START + 1.0))
    theirs, _ = Ipo(beta=0.3)(log_prob, batch_of_pairs())
    assert torch.equal(ours, theirs)


def test_the_expected_gradient_vanishes_at_the_held_nash_policy_and_not_beside_it() -> None:
    nash, objective = held_equilibrium(TAU), Inpo(eta=ETA, reference_share=SHARE)
    gradient = mean_gradient_of_pairs(objective, nash, nash, nash)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-12)
    beside = (nash + torch.tensor([0.1, 0.0, 0.0], dtype=torch.float64)).log_softmax(0)
    assert float(mean_gradient_of_pairs(objective, beside, beside, beside).abs().max()) > 0.004
    assert float((nash.exp() - REFERENCE.exp()).abs().max()) > 0.05


def test_a_round_is_least_at_a_step_of_mirror_descent() -> None:
    step = stepped(START)
    gradient = mean_gradient_of_pairs(Inpo(eta=ETA, reference_share=SHARE), step, START, START)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-12)
    torch.testing.assert_close(minimised(START), step, rtol=0, atol=1e-3)


def test_the_last_policy_of_many_rounds_is_the_held_nash_policy() -> None:
    policy = START
    for _ in range(25):
        policy = minimised(policy, steps=60)
    torch.testing.assert_close(policy.exp(), held_equilibrium(TAU).exp(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_only_a_share_of_the_reference_keeps_the_policy_from_going_round(share: float) -> None:
    policy = START
    for _ in range(400):
        policy = (mixed(policy, share) + PREFERENCE @ policy.exp() / ETA).log_softmax(0)
    objective = Inpo(eta=ETA, reference_share=share)
    still = float(mean_gradient_of_pairs(objective, policy, policy, policy).abs().max()) < 1e-9
    assert still == (share > 0)
