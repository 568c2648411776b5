"""SimPO's loss: a pair by hand, independence of the length, and the gradient at a margin of gamma."""

import math

import pytest
import torch
from torch import Tensor

from models.parts.objective.simpo import SimPo
from tests.support.tiny_batches import make_batch, numbers

OF = torch.tensor([0, 0, 0, 0, 1, 1])
"""Completion of each token: the better answer has four tokens, the worse two."""


def loss_of(objective: SimPo, log_prob: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    nothing = torch.zeros(len(log_prob), dtype=torch.float64)
    batch = make_batch(nothing, nothing, nothing, None, OF, torch.tensor([[0, 1]]))
    return objective(batch.by_pair(log_prob), batch)


def test_a_pair_by_hand() -> None:
    loss, watch = loss_of(SimPo(beta=2.0, gamma=0.5), numbers(-1.0, -1.0, -1.0, -1.0, -2.0, -3.0))
    # means -1 and -2.5: 2 * 1.5 - 0.5 = 2.5
    assert loss.tolist() == pytest.approx([math.log(1 + math.exp(-2.5))])
    assert watch["implied_better"].tolist() == [-2.0] and watch["implied_worse"].tolist() == [-5.0]


def test_an_answer_as_likely_by_token_is_worth_the_same_however_long() -> None:
    """The mean log-prob per token is -1 in both answers, so that the loss depends on gamma only."""
    loss, _ = loss_of(SimPo(gamma=0.0), numbers(-1.0, -1.0, -1.0, -1.0, -1.0, -1.0))
    assert loss.tolist() == pytest.approx([math.log(2)])


def test_it_reads_no_reference() -> None:
    assert not SimPo().needs_reference


def test_a_pair_that_leads_by_gamma_still_pulls_with_half_of_beta() -> None:
    log_prob = numbers(-1.0, -1.0, -1.0, -1.0, -1.5, -1.5).requires_grad_()
    loss, _ = loss_of(SimPo(beta=2.0, gamma=1.0), log_prob)
    loss.sum().backward()
    torch.testing.assert_close(log_prob.grad, numbers(*[-0.25] * 4, *[0.5] * 2))  # beta / 2 divided by each length
