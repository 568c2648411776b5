"""Weights of the tokens in a loss: values by hand for each normalisation, and means with weights that sum to one."""

import pytest
import torch

from models.learner.reduce import Normalisation, token_weights


@pytest.mark.parametrize(
    ("normalisation", "first", "second"),
    [("token", 1 / 4, 1 / 4), ("completion", 1 / 2, 1 / 6), ("constant", 1 / 8, 1 / 8)],
)
def test_weights_of_completions_of_one_and_three_tokens_by_hand(
    normalisation: Normalisation, first: float, second: float
) -> None:
    single, three = token_weights([1, 3], normalisation, longest=4)
    torch.testing.assert_close(single, torch.tensor([first], dtype=torch.float64))
    torch.testing.assert_close(three, torch.tensor([second] * 3, dtype=torch.float64))


@pytest.mark.parametrize("normalisation", ["token", "completion"])
def test_a_mean_has_weights_that_add_up_to_one(normalisation: Normalisation) -> None:
    total = sum(float(row.sum()) for row in token_weights([1, 3, 17, 5], normalisation, longest=20))
    assert total == pytest.approx(1.0, abs=1e-12)


def test_under_the_constant_a_token_weighs_the_same_however_long_its_completion() -> None:
    assert token_weights([1, 9], "constant", 16)[0][0] == token_weights([9, 9], "constant", 16)[0][0]
