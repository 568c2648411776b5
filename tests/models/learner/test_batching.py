"""What must be true of padding, cutting and weighting, each test named as the theorem it checks."""

import random

import pytest
import torch

from models.learner.batch import cut_by_tokens, pad_right
from models.learner.reduce import token_weights


def test_padding_by_hand():
    batch = pad_right([[5, 6, 7], [8]], pad_id=0)
    assert batch.ids.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert batch.mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch.lengths.tolist() == [3, 1]


@pytest.mark.parametrize("budget", [1, 7, 30, 1000])
def test_a_cut_holds_every_row_once_and_stays_within_the_budget(budget):
    chance = random.Random(budget)
    lengths = [chance.randint(1, 12) for _ in range(40)]
    cuts = cut_by_tokens(lengths, budget)
    assert sorted(row for cut in cuts for row in cut) == list(range(40))
    for cut in cuts:
        assert len(cut) == 1 or len(cut) * max(lengths[row] for row in cut) <= budget


def test_no_rows_give_no_cuts():
    assert cut_by_tokens([], 100) == []


@pytest.mark.parametrize(
    ("normalisation", "first", "second"),
    [("token", 1 / 4, 1 / 4), ("completion", 1 / 2, 1 / 6), ("constant", 1 / 8, 1 / 8)],
)
def test_weights_of_completions_of_one_and_three_tokens_by_hand(normalisation, first, second):
    one, three = token_weights([1, 3], normalisation, longest=4)
    torch.testing.assert_close(one, torch.tensor([first], dtype=torch.float64))
    torch.testing.assert_close(three, torch.tensor([second] * 3, dtype=torch.float64))


@pytest.mark.parametrize("normalisation", ["token", "completion"])
def test_a_mean_has_weights_that_add_up_to_one(normalisation):
    total = sum(float(row.sum()) for row in token_weights([1, 3, 17, 5], normalisation, longest=20))
    assert total == pytest.approx(1.0, abs=1e-12)


def test_under_the_constant_a_token_weighs_the_same_however_long_its_completion():
    assert token_weights([1, 9], "constant", 16)[0][0] == token_weights([9, 9], "constant", 16)[0][0]
