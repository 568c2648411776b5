"""The share of a problem's entities that the policy names."""

import pytest
import torch

from models.base.errors import UserError
from models.method.problem import Problem
from models.method.rollout import Rollout
from models.parts.rewards.episodes.entity_coverage import EntityCoverage
from tests.support.tiny_resources import make_resources


def value(prompt: str, text: str, reward: EntityCoverage) -> float:
    rollout = Rollout(Problem("p", prompt), 0, (1,), torch.zeros(1), text, True)
    return float(reward(make_resources(), [rollout])[0])


@pytest.mark.parametrize(
    "text, share", [("", 0.0), ("7 + 1 =", 1 / 3), ("7 + 12 =\n7 - 3.5 =", 1.0), ("99 + 98 =", 0.0), ("77 12", 1 / 3)]
)
def test_each_entity_counts_once_and_further_ones_do_not_count(text: str, share: float) -> None:
    assert value("Start with 7 . Add 12 . Add 7 . Take away 3.5 .", text, EntityCoverage()) == pytest.approx(share)


def test_a_prompt_without_entities_is_covered() -> None:
    assert value("How many?", "", EntityCoverage()) == 1.0


def test_the_pattern_sets_what_an_entity_is_regardless_of_case() -> None:
    assert value("Anna and Ben", "anna", EntityCoverage(pattern="anna|ben")) == 0.5


def test_a_pattern_that_cannot_be_read_is_refused_by_a_line() -> None:
    with pytest.raises(UserError, match=r"rewards\.entity_coverage\.pattern"):
        EntityCoverage(pattern="(")
