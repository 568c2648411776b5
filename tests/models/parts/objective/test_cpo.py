"""Tests of CPO's loss: values by hand, its relation to DPO, and the term of imitation."""

import math
from dataclasses import replace

import pytest
import torch

from models.parts.objective.cpo import Cpo
from models.parts.objective.dpo import Dpo
from tests.support.enumerable_pairs import PAIRS, batch_of_pairs, losses
from tests.support.tiny_batches import numbers

LOGITS = numbers(1.5, -0.3, 0.4, -2.0)


def test_a_pair_by_hand() -> None:
    loss, watch = Cpo(beta=0.5, sft=2.0)(numbers(-1.0, -3.0)[None], batch_of_pairs(torch.tensor([[0, 1]])))
    assert loss.tolist() == pytest.approx([math.log(1 + math.exp(-1.0)) + 2.0])
    assert watch["sft_loss"].tolist() == [1.0]


def test_without_imitation_it_is_dpo_whose_reference_holds_all_answers_equally_likely() -> None:
    flat = torch.full((4,), math.log(0.25), dtype=torch.float64)
    dpo = Dpo(beta=0.3)(LOGITS.log_softmax(0)[PAIRS], batch_of_pairs(PAIRS, flat))[0]
    torch.testing.assert_close(losses(Cpo(beta=0.3, sft=0.0), LOGITS), dpo)


def test_imitation_lifts_the_better_answer_of_a_pair_that_is_told_apart_already() -> None:
    """DPO's gradient vanishes for such a pair. CPO raises the better answer until it is certain."""
    log_prob = numbers(-5.0, -500.0)[None].requires_grad_()
    loss, _ = Cpo(beta=1.0)(log_prob, batch_of_pairs(torch.tensor([[0, 1]])))
    loss.sum().backward()
    assert log_prob.grad is not None
    assert log_prob.grad.tolist() == [[-1.0, pytest.approx(0.0, abs=1e-200)]]


def test_it_reads_no_reference() -> None:
    log_prob, batch = LOGITS.log_softmax(0)[PAIRS], batch_of_pairs(PAIRS)
    alone, _ = Cpo()(log_prob, replace(batch, reference=None))
    assert not Cpo().needs_reference
    torch.testing.assert_close(alone, Cpo()(log_prob, batch)[0])
