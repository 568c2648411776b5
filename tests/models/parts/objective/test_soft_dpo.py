"""DPO with soft labels: given labels, strengths and certainties, and the margin at which the gradient is zero."""

import math
from collections.abc import Sequence
from typing import Literal

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.parts.objective.dpo import Dpo
from models.parts.objective.soft_dpo import SoftDpo
from models.parts.shared.soft_label import uncertainty
from tests.support.enumerable_pairs import PAIRS, REFERENCE, REWARDS, batch_of_pairs, losses, mean_gradient, optimum

LOGITS = torch.tensor([1.5, -0.3, 0.4, -2.0], dtype=torch.float64)
TRUE_REWARDS = REWARDS[PAIRS.flatten()]


def given(label: float, pairs: Tensor = PAIRS) -> dict[str, Tensor]:
    """Return a component with the same label at both completions of every pair."""
    return {"sure": torch.full((2 * len(pairs),), label, dtype=torch.float64)}


def labels(objective: SoftDpo, better: Sequence[float], worse: Sequence[float]) -> Tensor:
    """Return the labels of pairs whose completions have these total rewards."""
    pairs = torch.zeros(len(better), 2, dtype=torch.long)
    reward = torch.tensor([value for pair in zip(better, worse, strict=True) for value in pair], dtype=torch.float64)
    return objective._labels(batch_of_pairs(pairs, reward=reward))


def test_a_label_of_one_is_dpo_and_of_zero_dpo_of_the_pair_turned_round() -> None:
    objective = SoftDpo(beta=0.3, label="given", by="sure")
    sure, wrong = (losses(objective, LOGITS, components=given(label)) for label in (1.0, 0.0))
    torch.testing.assert_close(sure, losses(Dpo(beta=0.3), LOGITS))
    torch.testing.assert_close(wrong, losses(Dpo(beta=0.3), LOGITS, PAIRS.flip(-1)))


def test_a_given_label_is_the_mean_of_what_stands_at_both_completions() -> None:
    metrics = {"sure": torch.tensor([0.9, 0.5, 0.0, 1.0], dtype=torch.float64)}
    label = SoftDpo(label="given", by="sure")._labels(batch_of_pairs(PAIRS[:2], components=metrics))
    assert label.tolist() == pytest.approx([0.7, 0.5])


def test_a_label_between_mixes_both_readings_of_the_pair() -> None:
    mixed = losses(SoftDpo(beta=0.3, label="given", by="sure"), LOGITS, components=given(0.8))
    dpo = Dpo(beta=0.3)
    torch.testing.assert_close(mixed, 0.8 * losses(dpo, LOGITS) + 0.2 * losses(dpo, LOGITS, PAIRS.flip(-1)))


def test_a_pair_is_content_where_its_margin_is_the_log_odds_of_its_label() -> None:
    margin = math.log(0.8 / 0.2)
    log_prob = torch.tensor([[REFERENCE[0] + margin, REFERENCE[1]]], dtype=torch.float64, requires_grad=True)
    pair = torch.tensor([[0, 1]])
    loss, _ = SoftDpo(beta=1.0, label="given", by="sure")(log_prob, batch_of_pairs(pair, components=given(0.8, pair)))
    loss.sum().backward()
    torch.testing.assert_close(log_prob.grad, torch.zeros(1, 2, dtype=torch.float64))
    assert loss.item() == pytest.approx(-0.8 * math.log(0.8) - 0.2 * math.log(0.2))


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_with_true_strengths_every_single_pair_is_content_at_the_optimum_of_reward_less_kl(temperature: float) -> None:
    """No mean over draws is needed, unlike with hard labels; the temperature divides the reward."""
    objective = SoftDpo(beta=0.6, temperature=temperature)
    best = optimum(0.6 * temperature)
    for number in range(len(PAIRS)):
        preferred = torch.zeros(len(PAIRS), dtype=torch.float64)
        preferred[number] = 1.0
        gradient = mean_gradient(objective, best, preferred, reward=TRUE_REWARDS)
        torch.testing.assert_close(gradient, torch.zeros(4, dtype=torch.float64))
    hard = mean_gradient(Dpo(beta=0.6), best, preferred)
    assert hard.abs().max() > 1e-2


def test_a_strength_is_the_bradley_terry_chance_of_the_difference() -> None:
    label = labels(SoftDpo(temperature=2.0), [2.0 * math.log(3), 5.0], [0.0, 5.0])
    assert label.tolist() == pytest.approx([0.75, 0.5])


def test_certainty_falls_from_one_to_a_half_as_the_values_come_near() -> None:
    label = labels(SoftDpo(label="certainty"), [50.0, math.log(3), 0.7], [0.0, 0.0, 0.7])
    bits = -(0.75 * math.log2(0.75) + 0.25 * math.log2(0.25))
    assert label.tolist() == pytest.approx([1.0, 1 - bits / 2, 0.5])


@pytest.mark.parametrize("label", ["certainty", "strength"])
def test_where_nothing_is_in_doubt_it_is_dpo(label: Literal["strength", "certainty", "given"]) -> None:
    """The labels of UPO and OSP are 1 for pairs whose rewards differ by 1000."""
    reward = torch.tensor([1000.0, 0.0], dtype=torch.float64).repeat(len(PAIRS))
    loss = losses(SoftDpo(beta=0.3, label=label), LOGITS, reward=reward)
    torch.testing.assert_close(loss, losses(Dpo(beta=0.3), LOGITS))


def test_uncertainty_is_finite_and_zero_however_large_the_log_odds() -> None:
    log_odds = torch.tensor([-1e4, -800.0, 0.0, 800.0, 1e4], dtype=torch.float64)
    assert uncertainty(log_odds).tolist() == [0.0, 0.0, 1.0, 0.0, 0.0]


def test_a_component_that_orders_the_pair_the_other_way_gives_a_label_below_a_half() -> None:
    reward = torch.tensor([1.0, 0.0], dtype=torch.float64)
    judge = {"judge": torch.tensor([-1.0, 1.0], dtype=torch.float64)}
    label = SoftDpo(by="judge")._labels(batch_of_pairs(torch.tensor([[0, 1]]), reward=reward, components=judge))
    assert label.tolist() == pytest.approx([1 / (1 + math.exp(2.0))])


def test_what_no_reward_is_called_and_what_is_no_label_are_refused() -> None:
    with pytest.raises(UserError, match=r"no reward is called judge; there are sure"):
        losses(SoftDpo(by="judge"), LOGITS, components=given(1.0))
    with pytest.raises(UserError, match=r"not in \[0, 1\]"):
        losses(SoftDpo(label="given", by="sure"), LOGITS, components=given(1.2))
