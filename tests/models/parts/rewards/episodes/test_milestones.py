"""Milestones: matched in the environment's output only, once each, and rewarded at the turn before that output."""

import pytest
import torch

from models.method.episode import Turn
from models.method.problem import Problem
from models.method.rollout import Rollout, RolloutEpisode
from models.parts.rewards.episodes.milestones import Milestones
from tests.support.tiny_resources import make_resources


def test_each_milestone_counts_once_at_its_turn_and_never_for_what_the_policy_says() -> None:
    turns = (
        Turn(0, 2, text="loaded", response="error: nothing"),
        Turn(3, 5, text="go", response="loaded data"),
        Turn(6, 7, text="go", response="loaded again, built model"),
    )
    rollout = Rollout(Problem("p", ""), 0, (5,) * 7, None, "loaded", True, episode=RolloutEpisode(turns=turns))
    row = Milestones(patterns=("^loaded", "built"), each=0.5).tokens(make_resources(), [rollout])[0]
    assert row.tolist() == [0, 0, 0, 0, 0.5, 0, 0.5]
    plain = Rollout(Problem("p", ""), 0, (5, 6), None, "loaded", True)
    assert not torch.cat(Milestones(patterns=("loaded",)).tokens(make_resources(), [plain])).any()


def test_what_is_no_pattern_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"patterns: '\(' is not a regular expression"):
        Milestones(patterns=("(",))
