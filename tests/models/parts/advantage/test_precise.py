"""The advantage `precise`: a weight at tokens of a pattern, next to the group-relative advantage."""

import pytest
import torch

from models.base.errors import UserError
from models.method.problem import Problem
from models.method.rollout import Rollout
from models.method.scored import Scored
from models.parts.advantage.group_relative import GroupRelative
from models.parts.advantage.precise import Precise
from tests.support.tiny_resources import CODEC, make_resources

TEXTS = ("3 plus 14", "four", "7 7")


def scored() -> Scored:
    problem = Problem("p", "what", "3")
    rollouts = [Rollout(problem, 0, tuple(CODEC.completions([text])[0]), None, text, finished=True) for text in TEXTS]
    return Scored(rollouts, torch.tensor([1.0, 0.0, 0.5]), {}, {})


def test_numbers_have_the_weight_and_all_other_tokens_the_advantage_of_their_completion() -> None:
    resources, rows = make_resources(), Precise(weight=3.0)(make_resources(), scored()).tokens
    advantage = GroupRelative().of_completions(resources, scored())
    for row, rollout, value in zip(rows, scored().rollouts, advantage.tolist(), strict=True):
        texts = [CODEC.token_texts[token].strip() for token in rollout.completion]
        expected = [value * (3.0 if text.isdecimal() else 1.0) for text in texts]
        assert row.tolist() == pytest.approx(expected)
    assert any(CODEC.token_texts[token].strip().isdecimal() for token in scored().rollouts[0].completion)


def test_with_weight_one_it_is_the_group_relative_advantage() -> None:
    rows = Precise(weight=1.0)(make_resources(), scored()).tokens
    plain = GroupRelative()(make_resources(), scored()).tokens
    for row, expected in zip(rows, plain, strict=True):
        torch.testing.assert_close(row, expected)


def test_a_picture_between_the_turns_has_no_text() -> None:
    problem = Problem("p", "what", "3")
    rollouts = [Rollout(problem, 0, (4, -77, -78, 5), None, "", finished=True) for _ in range(2)]
    (row, _) = Precise()(make_resources(), Scored(rollouts, torch.tensor([1.0, 0.0]), {}, {})).tokens
    assert len(row) == 4 and torch.isfinite(row).all()


def test_a_pattern_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(UserError, match=r"advantage\.pattern"):
        Precise(pattern="(")
