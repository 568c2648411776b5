"""The choice of reliable pairs: those whose preference has at most a given entropy."""

import math

import pytest
import torch

from models.base.errors import UserError
from models.parts.select.best_worst import BestWorst
from models.parts.select.reliable import Reliable
from tests.support.tiny_models import scored

REWARDS = torch.tensor([0.0, 0.1, math.log(3), 0.0, 4.0, -4.0], dtype=torch.float64)
ROUND = scored(REWARDS, [2, 2, 2], {"judge": REWARDS.flip(0)})
# Preferences of 0.525, 0.75 and 0.9997 have an entropy of 0.998, 0.811 and 0.004 bits.


@pytest.mark.parametrize(
    ("most", "kept"), [(1.0, [0, 1, 2, 3, 4, 5]), (0.82, [2, 3, 4, 5]), (0.81, [4, 5]), (0.001, [])]
)
def test_what_is_kept_is_what_leaves_so_many_bits_open_at_most(most: float, kept: list[int]) -> None:
    assert Reliable(most_uncertain=most)(ROUND).tolist() == kept


def test_a_higher_temperature_doubts_more() -> None:
    assert Reliable(most_uncertain=0.5)(ROUND).tolist() == [4, 5]
    assert Reliable(most_uncertain=0.5, temperature=8.0)(ROUND).tolist() == []


def test_one_component_alone_can_be_asked() -> None:
    assert Reliable(most_uncertain=0.5, by="judge")(ROUND).tolist() == [0, 1]
    with pytest.raises(UserError, match="no reward is called other"):
        Reliable(by="other")(ROUND)


def test_before_or_after_the_best_and_the_worst_are_taken_the_same_groups_stay() -> None:
    whole = scored(torch.tensor([0.0, 3.0, 1.0, 0.2, 0.1, 0.0]), [3, 3])
    first = whole.take(Reliable(most_uncertain=0.6)(whole))
    pairs = whole.take(BestWorst()(whole))
    assert first.take(BestWorst()(first)).rewards.tolist() == [3.0, 0.0]
    assert pairs.take(Reliable(most_uncertain=0.6)(pairs)).rewards.tolist() == [3.0, 0.0]
