"""Tests of DPO's loss: values by hand, its gradient at the reference, and the settings for noise and imitation."""

import math
from collections.abc import Sequence

import pytest
import torch

from models.method.token_batch import TokenBatch
from models.parts.objective.dpo import Dpo
from tests.support.tiny_batches import make_batch


def batch_of(reference: Sequence[float]) -> TokenBatch:
    """Return two pairs of completions of one token. In the second pair, the better one comes last."""
    nothing = torch.zeros(4, dtype=torch.float64)
    return make_batch(
        advantage=nothing,
        behaviour=nothing,
        old=nothing,
        reference=torch.tensor(reference, dtype=torch.float64),
        pairs=torch.tensor([[0, 1], [3, 2]]),
    )


def test_a_pair_by_hand() -> None:
    log_prob = torch.tensor([[-1.0, -3.0], [-2.0, -2.0]], dtype=torch.float64)
    loss, watch = Dpo(beta=0.5)(log_prob, batch_of([-2.0, -2.0, -4.0, -1.0]))
    # 0.5 * ((-1 + 2) - (-3 + 2)) = 1 and 0.5 * ((-2 + 1) - (-2 + 4)) = -1.5
    assert loss.tolist() == pytest.approx([math.log(1 + math.exp(-1.0)), math.log(1 + math.exp(1.5))])
    assert watch["pair_margin"].tolist() == [1.0, -1.5] and watch["pair_accuracy"].tolist() == [1.0, 0.0]


def test_a_policy_that_is_its_reference_has_a_loss_of_log_2_and_a_gradient_of_half_beta() -> None:
    log_prob = torch.tensor([[-2.0, -2.0], [-1.0, -4.0]], dtype=torch.float64, requires_grad=True)
    loss, _ = Dpo(beta=0.1)(log_prob, batch_of([-2.0, -2.0, -4.0, -1.0]))
    loss.sum().backward()
    assert loss.tolist() == pytest.approx([math.log(2)] * 2)
    torch.testing.assert_close(log_prob.grad, torch.tensor([[-0.05, 0.05]] * 2, dtype=torch.float64))


def test_what_shifts_both_answers_of_a_pair_changes_nothing() -> None:
    log_prob = torch.tensor([[-1.0, -3.0], [-2.0, -2.5]], dtype=torch.float64)
    loss, _ = Dpo()(log_prob, batch_of([-2.0, -2.0, -4.0, -1.0]))
    shifted, _ = Dpo()(log_prob + 7.0, batch_of([1.0, 1.0, -1.0, 2.0]))
    torch.testing.assert_close(loss, shifted)


def test_under_doubt_a_pair_is_content_where_its_margin_is_the_log_odds_of_its_label() -> None:
    log_prob = torch.tensor([[math.log(4.0) - 2.0, -2.0], [-4.0, -1.0]], dtype=torch.float64, requires_grad=True)
    loss, _ = Dpo(beta=1.0, label_smoothing=0.2)(log_prob, batch_of([-2.0, -2.0, -1.0, -4.0]))
    loss.sum().backward()
    assert log_prob.grad is not None
    torch.testing.assert_close(log_prob.grad[0], torch.zeros(2, dtype=torch.float64))
    assert loss[1].item() == pytest.approx(math.log(2))


def test_imitation_adds_the_mean_negative_log_prob_of_the_better_answers_tokens() -> None:
    """The better answers have two tokens each and log-probs of -3 and -5, so the mean is 1.5 and 2.5."""
    nothing, of = torch.zeros(6, dtype=torch.float64), torch.tensor([0, 0, 1, 2, 3, 3])
    batch = make_batch(nothing, nothing, nothing, nothing, of, torch.tensor([[0, 1], [3, 2]]))
    log_prob = torch.tensor([[-3.0, -1.0], [-5.0, -2.0]], dtype=torch.float64)
    plain, _ = Dpo()(log_prob, batch)
    held, watch = Dpo(sft=0.5)(log_prob, batch)
    assert watch["sft_loss"].tolist() == [1.5, 2.5]
    torch.testing.assert_close(held - plain, torch.tensor([0.75, 1.25], dtype=torch.float64))
