"""The filter of positive advantages: the completions that it drops, and the rewards that it compares."""

import pytest
import torch

from models.base.errors import UserError
from models.parts.advantage.reward import FixedBaseline
from models.parts.select.positive_advantage import PositiveAdvantage
from tests.support.tiny_models import scored
from tests.support.tiny_resources import make_resources


def test_negative_advantages_are_dropped_whatever_their_group() -> None:
    kept = PositiveAdvantage(value=0.5)(scored([0.9, 0.1, 0.6, 0.4, 0.3, 0.2], [2, 2, 2]))
    assert kept.tolist() == [0, 2]


def test_what_is_worth_as_much_as_the_reference_gives_no_signal_and_is_dropped() -> None:
    assert PositiveAdvantage(value=0.5)(scored([0.5, 0.75], [2])).tolist() == [1]


def test_with_the_same_baseline_every_advantage_that_is_left_is_positive() -> None:
    generator = torch.Generator().manual_seed(0)
    rewards = torch.randn(50, dtype=torch.float64, generator=generator)
    whole = scored(rewards, [50])
    left = whole.take(PositiveAdvantage(value=0.2)(whole))
    advantage = FixedBaseline(baseline=0.2).of_completions(make_resources(), left)
    assert (advantage > 0).all() and len(advantage) == int((rewards > 0.2).sum())


def test_a_component_can_be_compared_instead_of_the_sum() -> None:
    verifier = torch.tensor([1.0, 0.0])
    whole = scored([0.1, 5.0], [2], {"exact_answer": verifier})
    assert PositiveAdvantage(value=0.5, by="exact_answer")(whole).tolist() == [0]


def test_an_unknown_component_is_named_with_those_that_exist() -> None:
    with pytest.raises(UserError, match="no reward is called judge; there are exact_answer"):
        PositiveAdvantage(by="judge")(scored([1.0], [1], {"exact_answer": torch.ones(1)}))


def test_of_nothing_nothing_is_kept() -> None:
    assert PositiveAdvantage()(scored([], [])).tolist() == []
