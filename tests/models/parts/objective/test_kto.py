"""The losses of KTO and BCO: published formulas, a bound on DPO, and the weight of answers far from the point z.

The published formulas are TRL 1.16's: trl/trainer/kto_trainer.py for KTO (z given), and for BCO `bco_loss` of its
experimental trainer and `bco_pair` of trl/trainer/dpo_trainer.py.
"""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.method.token_batch import TokenBatch
from models.parts.objective.bco import Bco
from models.parts.objective.kto import Kto
from models.recipes.load import load_recipe
from tests.support.ragged_pairs import Pairs, random_pairs
from tests.support.tiny_batches import make_batch, numbers

BASELINE = "log_ratio_baseline"


def answers(reference: Tensor, reward: Tensor, baseline: float) -> TokenBatch:
    """Return a batch of answers of one token each, all with the point z = `baseline`."""
    nothing = torch.zeros(len(reward), dtype=torch.float64)
    components = {BASELINE: torch.full_like(nothing, baseline)}
    return make_batch(nothing, nothing, nothing, reference, reward=reward, components=components)


def random_answers(seed: int, baseline: float = 0.7) -> tuple[Pairs, TokenBatch, Tensor]:
    """Return random pairs, a batch of their answers with random labels, and the labels (True if good), [12]."""
    pairs = random_pairs(seed, spread=0.5)
    good = torch.rand(12, generator=torch.Generator().manual_seed(seed)) > 0.4
    point = {BASELINE: torch.full((12,), baseline, dtype=torch.float64)}
    return pairs, replace(pairs.batch, reward=good.double(), components=point), good


def test_answers_by_hand() -> None:
    # log-ratios 1 + log 3 and 1 - log 3 differ from z = 1 by log 3, whose sigmoid is 3/4
    log_prob = numbers(1 + math.log(3), 1 - math.log(3), 1 + math.log(3))
    batch = answers(numbers(0.0, 0.0, 0.0), numbers(1.0, 0.0, 0.0), 1.0)
    loss, watch = Kto(beta=1.0, desirable=2.0, undesirable=3.0)(log_prob, batch)
    assert loss.tolist() == pytest.approx([2 * 0.25, 3 * 0.25, 3 * 0.75])
    assert watch["outcome_accuracy"].tolist() == [1.0, 1.0, 0.0]
    assert Bco(beta=1.0)(log_prob, batch)[0].tolist() == pytest.approx([-math.log(p) for p in (0.75, 0.75, 0.25)])


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("objective", [Kto, Bco])
def test_loss_and_gradient_are_the_published_ones(objective: type[Kto], seed: int) -> None:
    beta, kl, weights = 0.3, 0.7, (1.3, 0.6)
    pairs, batch, good = random_answers(seed, kl)
    made = objective(beta=beta, desirable=weights[0], undesirable=weights[1])
    loss, _ = made(batch.sum_by_completion(pairs.log_prob), batch)
    (mine,) = torch.autograd.grad(loss.sum(), pairs.log_prob)
    published = []
    for number in range(12):
        here = batch.completion == number
        assert batch.reference is not None
        ratio = pairs.log_prob[here].sum() - batch.reference[here].sum()
        if objective is Kto:
            value = 1 - torch.sigmoid(beta * (ratio - kl)) if good[number] else 1 - torch.sigmoid(beta * (kl - ratio))
        else:
            reward, delta = beta * ratio, beta * kl
            chance = torch.sigmoid(reward - delta) if good[number] else torch.sigmoid(-(reward - delta))
            value = -torch.log(chance)
        published.append(weights[0 if good[number] else 1] * value)
    torch.testing.assert_close(loss, torch.stack(published), rtol=0, atol=1e-12)
    (theirs,) = torch.autograd.grad(torch.stack(published).sum(), pairs.log_prob)
    torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)


def test_without_a_shift_both_losses_of_a_pair_add_up_to_trls_bco_pair() -> None:
    pairs, batch, _ = random_answers(0, baseline=0.0)
    better_first = torch.zeros(12, dtype=torch.float64)
    assert batch.pairs is not None
    better_first[batch.pairs[:, 0]] = 1.0
    loss, _ = Bco(beta=0.3)(batch.sum_by_completion(pairs.log_prob), replace(batch, reward=better_first))
    assert batch.reference is not None
    rewards = 0.3 * (batch.by_pair(pairs.log_prob) - batch.by_pair(batch.reference))
    wanted = -torch.log(torch.sigmoid(rewards[:, 0])) - torch.log(torch.sigmoid(-rewards[:, 1]))
    torch.testing.assert_close(loss[batch.pairs].sum(-1), wanted, rtol=0, atol=1e-12)


def test_bco_is_an_upper_bound_of_dpo_wherever_the_shift_lies() -> None:
    for baseline in (-1.0, 0.0, 2.0):
        batch = answers(numbers(0.0, 0.0), numbers(1.0, 0.0), baseline)
        loss, _ = Bco(beta=1.0)(numbers(0.8, -0.3), batch)
        assert loss.sum() > math.log(1 + math.exp(-1.1))


def test_the_further_from_the_point_an_answer_lies_the_less_it_counts_on_either_side() -> None:
    log_prob = numbers(-40.0, 0.0, 40.0).requires_grad_()
    loss, _ = Kto(beta=1.0)(log_prob, answers(numbers(0.0, 0.0, 0.0), numbers(1.0, 1.0, 1.0), 0.0))
    loss.sum().backward()
    assert log_prob.grad is not None
    far, near, beyond = log_prob.grad.abs().tolist()
    assert near == 0.25 and max(far, beyond) < 1e-15


def test_a_recipe_without_the_reward_that_holds_the_point_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("extends: kto\nrewards: [{name: origin}]\n")
    with pytest.raises(UserError, match=r"objective\.by: no reward is labelled 'log_ratio_baseline'"):
        load_recipe(file)
