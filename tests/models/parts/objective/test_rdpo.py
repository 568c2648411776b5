"""The robust DPO loss: DPO without flips, unbiased under flipped labels, and its slope for large margins."""

import math

import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from models.parts.objective.dpo import Dpo
from models.parts.objective.rdpo import RobustDpo
from tests.support.enumerable_pairs import CHANCE, PAIRS, batch_of_pairs, losses, mean_gradient, optimum

LOGITS = torch.tensor([1.5, -0.3, 0.4, -2.0], dtype=torch.float64)
FLIPPED = PAIRS.flip(-1)


def test_without_flips_it_is_dpo() -> None:
    torch.testing.assert_close(losses(RobustDpo(flip_rate=0.0, beta=0.3), LOGITS), losses(Dpo(beta=0.3), LOGITS))


def test_a_pair_by_hand() -> None:
    # margin 2 * ln 3 * 0.5 = ln 3: l(m) = ln(4/3), l(-m) = ln 4; (0.75 ln(4/3) - 0.25 ln 4) / 0.5
    reference = torch.tensor([0.25] * 4, dtype=torch.float64).log()
    logits = torch.tensor([2 * math.log(3), 0.0, 0.0, 0.0], dtype=torch.float64)
    loss = losses(RobustDpo(beta=0.5, flip_rate=0.25), logits, torch.tensor([[0, 1]]), reference=reference)
    assert loss.tolist() == pytest.approx([1.5 * math.log(4 / 3) - 0.5 * math.log(4)])


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.49])
def test_its_mean_over_flips_is_the_loss_on_clean_labels_pair_by_pair(rate: float) -> None:
    objective = RobustDpo(beta=0.8, flip_rate=rate)
    mean = (1 - rate) * losses(objective, LOGITS, PAIRS) + rate * losses(objective, LOGITS, FLIPPED)
    torch.testing.assert_close(mean, losses(Dpo(beta=0.8), LOGITS))


def test_on_flipped_labels_it_still_leads_to_the_optimum_and_dpo_does_not() -> None:
    rate, beta = 0.3, 0.5
    seen, chance = torch.cat([PAIRS, FLIPPED]), torch.cat([(1 - rate) * CHANCE, rate * CHANCE])
    robust = mean_gradient(RobustDpo(beta=beta, flip_rate=rate), optimum(beta), chance, seen)
    torch.testing.assert_close(robust, torch.zeros(4, dtype=torch.float64))
    assert mean_gradient(Dpo(beta=beta), optimum(beta), chance, seen).abs().max() > 1e-2


def test_a_pair_is_pulled_apart_however_far_it_is_already() -> None:
    """For large margins the slope in the margin tends to -e / (1 - 2 e), while DPO's tends to zero."""
    log_prob = torch.tensor([[-1.0, -400.0]], dtype=torch.float64, requires_grad=True)
    loss, _ = RobustDpo(beta=1.0, flip_rate=0.25)(log_prob, batch_of_pairs(torch.tensor([[0, 1]])))
    loss.sum().backward()
    torch.testing.assert_close(log_prob.grad, torch.tensor([[-0.5, 0.5]], dtype=torch.float64))


@pytest.mark.parametrize("rate", [-0.1, 0.5, 0.7])
def test_a_rate_at_which_labels_say_nothing_or_the_opposite_is_refused(rate: float) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(RobustDpo).validate_python({"name": "rdpo", "flip_rate": rate})
