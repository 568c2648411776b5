"""Strength of preferences, measured by several reward models: weak pairs are swapped, others get a margin."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from models.policies.folder import save_model_folder
from models.reward_models.fit import (
    Pair,
    RewardModelSettings,
    accumulate,
    bradley_terry_loss,
    fit_reward_model,
    score_pairs,
)
from models.reward_models.model import reward_model_from_policy
from models.reward_models.strength import JudgedPairs, StrengthSettings, judged_pairs, strength_of
from tests.support.tiny_models import tiny_policy
from tests.support.tiny_resources import CODEC

PAIRS = [Pair([1], [10 + n, 0], [20 + n, 0]) for n in range(5)]
STRENGTH = np.array([0.7, -0.2, -1.5, 0.0, -0.4])


def test_strength_is_the_mean_of_the_members_margins() -> None:
    assert strength_of(torch.tensor([[1.0, -2.0], [3.0, 0.5]])).tolist() == [2.0, -0.75]


def test_the_weakest_pairs_are_turned_round_as_far_as_they_lie_below_zero() -> None:
    judged = judged_pairs(PAIRS, STRENGTH, StrengthSettings(flipped=0.4))
    assert judged.flipped.tolist() == [False, False, True, False, True]
    assert judged[2].chosen == PAIRS[2].rejected and judged[2].rejected == PAIRS[2].chosen
    assert judged[1].chosen == PAIRS[1].chosen
    assert judged_pairs(PAIRS, STRENGTH, StrengthSettings(flipped=1.0)).flipped.tolist() == [
        False, True, True, False, True,
    ]  # fmt: skip
    assert not judged_pairs(PAIRS, STRENGTH, StrengthSettings(flipped=0.0)).flipped.any()


def test_a_pairs_margin_is_its_strength_and_that_of_its_turn_once_it_is_turned() -> None:
    judged = judged_pairs(PAIRS, STRENGTH, StrengthSettings(flipped=0.2))
    assert [pair.margin for pair in judged] == [0.7, 0.0, 1.5, 0.0, 0.0]
    flat = judged_pairs(PAIRS, STRENGTH, StrengthSettings(flipped=0.2, adaptive_margin=False))
    assert [pair.margin for pair in flat] == [0.0] * 5 and flat.flipped.tolist() == judged.flipped.tolist()


def test_a_slice_is_of_the_same_pairs() -> None:
    judged = judged_pairs(PAIRS, STRENGTH, StrengthSettings(flipped=0.4))
    part = judged[2:4]
    assert isinstance(part, JudgedPairs) and list(part) == [judged[2], judged[3]] and len(part) == 2


def test_smoothing_and_margins_enter_as_their_formula_says() -> None:
    chosen, rejected = torch.tensor([1.0, 0.5]), torch.tensor([0.0, 2.0])
    loss = bradley_terry_loss(chosen, rejected, torch.tensor([0.25, -1.0]), 0.0, 0.1)
    expected = [0.9 * math.log1p(math.exp(-d)) + 0.1 * math.log1p(math.exp(d)) for d in (1.0 - 0.25, -1.5 + 1.0)]
    assert loss.tolist() == pytest.approx(expected)
    # If both orders of a pair are equally likely, the gradient is zero at equal scores.
    half = torch.tensor([0.0], requires_grad=True)
    bradley_terry_loss(half, torch.zeros(1), 0.0, 0.0, 0.4999999).backward()  # type: ignore[no-untyped-call]
    assert half.grad is not None and float(half.grad) == pytest.approx(0.0, abs=1e-6)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("strength") / "policy"
    save_model_folder(tiny_policy(torch.float32), CODEC.tokenizer, folder)
    return folder


def test_every_pair_has_its_own_margin_in_the_gradient_whatever_row_it_lies_in(start: Path) -> None:
    texts = ["1 + 2 =", "3 +", "4 + 5 + 6 =", "7"]
    chosen_ids, rejected_ids = CODEC.completions(["3", "4 5", "7", "8 8"]), CODEC.completions(["9 9 9", "1", "2", "0"])
    margins = (0.0, 1.5, -0.5, 2.0)
    rows = zip(CODEC.prompts(texts), chosen_ids, rejected_ids, margins, strict=True)
    pairs = [Pair(*row) for row in rows]
    gradients = []
    for budget in (512, 24):
        model = reward_model_from_policy(start, seed=0, head_std=1.0)
        watched = accumulate(model, pairs, RewardModelSettings(token_budget=budget, label_smoothing=0.2))
        chosen, rejected = score_pairs(model, pairs)
        wanted = torch.tensor([pair.margin for pair in pairs])
        assert float(watched["loss"]) == pytest.approx(
            float(bradley_terry_loss(chosen, rejected, wanted, 0.0, 0.2).mean()), abs=1e-5
        )
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert torch.allclose(gradients[0], gradients[1], atol=1e-5)


@pytest.mark.rotating(of=6)
def test_judges_tell_the_pairs_that_were_turned_round(start: Path) -> None:
    """Answers of 7 are better, and a fifth of the labels is wrong. Exactly the pairs with a wrong label are swapped."""
    generator = torch.Generator().manual_seed(0)
    (good, bad), prompts = CODEC.completions(["7", "3"]), CODEC.prompts(["1 + 2 =", "3 +", "4 + 5 + 6 =", "9 + 1 ="])
    wrong = torch.rand(60, generator=generator) < 0.2
    pairs = [Pair(prompts[n % 4], *((bad, good) if turned else (good, bad))) for n, turned in enumerate(wrong.tolist())]
    margins = []
    for seed in range(3):
        judge = reward_model_from_policy(start, seed=seed)
        fit_reward_model(judge, pairs, RewardModelSettings(steps=30, batch_pairs=20), seed=seed)
        chosen, rejected = score_pairs(judge, pairs)
        margins.append(chosen - rejected)
    judged = judged_pairs(pairs, strength_of(torch.stack(margins)), StrengthSettings(flipped=0.5))
    assert judged.flipped.tolist() == wrong.tolist()
