"""Weighted preference optimisation: DPO times the weight of each pair, and recipes without that weight."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.parts.objective.dpo import Dpo
from models.parts.objective.wpo import Wpo
from models.recipes.load import load_recipe
from tests.support.ragged_pairs import PAIRS, as_it_is, random_pairs
from tests.support.tiny_batches import numbers


def weighted(objective: Wpo, typicality: Tensor, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return loss and gradient for random pairs whose answers have this typicality, [2 * pairs]."""
    pairs = random_pairs(seed)
    batch = replace(pairs.batch, components={"typicality": typicality})
    return as_it_is(objective, replace(pairs, batch=batch))


def test_loss_and_gradient_are_dpos_times_the_weight_of_each_pair() -> None:
    """The published weight is clamp(exp(better + worse), max=1), detached (wzhouad/WPO, scripts/run_wpo.py)."""
    typicality = -torch.rand(2 * PAIRS, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    typicality[:2] = numbers(0.5, 0.2)  # at least as likely as samples: the weight is limited to 1
    loss, gradient = weighted(Wpo(beta=0.4), typicality)
    plain = random_pairs()
    dpo, _ = Dpo(beta=0.4)(plain.batch.by_pair(plain.log_prob), plain.batch)
    assert plain.batch.pairs is not None
    sums = typicality[plain.batch.pairs].sum(-1)
    weight = torch.tensor([min(1.0, math.exp(value)) for value in sums.tolist()], dtype=torch.float64)
    assert weight[0] == 1.0 > weight[1:].max()
    torch.testing.assert_close(loss, weight * dpo, rtol=0, atol=1e-12)
    (theirs,) = torch.autograd.grad((weight * dpo).sum(), plain.log_prob)
    torch.testing.assert_close(gradient, theirs, rtol=0, atol=1e-12)


def test_pairs_that_are_the_policys_own_count_whole_which_is_dpo() -> None:
    loss, _ = weighted(Wpo(beta=0.4), torch.zeros(2 * PAIRS, dtype=torch.float64))
    torch.testing.assert_close(loss, as_it_is(Dpo(beta=0.4), random_pairs())[0], rtol=0, atol=0)


def test_a_recipe_without_the_reward_that_weighs_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("extends: wpo\nrewards: [{name: origin}]\n")
    with pytest.raises(UserError, match=r"objective\.by: no reward is labelled 'typicality'"):
        load_recipe(file)
