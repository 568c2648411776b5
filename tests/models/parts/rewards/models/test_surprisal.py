"""Moderate surprise: its formula on an independent reading, its maximum, incoherence, and a missing reference."""

import math
from dataclasses import replace

import pytest
import torch

from models.base.errors import UserError
from models.method.episode import Turn
from models.method.resources import RunResources
from models.method.rollout import RolloutEpisode
from models.parts.rewards.models.surprisal import Surprisal, curiosity
from tests.support.tiny_loops import SCHEDULE, new_learner
from tests.support.tiny_models import SEQUENCES, plain_log_probs, scored, tiny_policy
from tests.support.tiny_resources import make_resources

ROLLOUTS = scored([0.0] * 5, [1] * 5, sequences=SEQUENCES).rollouts
REFERENCE = tiny_policy(seed=5)
SURPRISES = [-row.detach() for row in plain_log_probs(REFERENCE, SEQUENCES)]


def resources_of(reference: torch.nn.Module | None) -> RunResources:
    learner = new_learner(SCHEDULE)
    learner.policy, learner.reference = tiny_policy(), reference
    return make_resources(learner=learner)


def test_curiosity_by_hand() -> None:
    values = curiosity(torch.tensor([1.0, 1.5, 0.5, 2.0]), 1.0, 0.5).tolist()
    assert values == pytest.approx([1.0, math.exp(-0.5), math.exp(-0.5), math.exp(-2.0)])


def test_the_value_is_the_formula_on_log_probs_by_definition() -> None:
    reward = Surprisal(moderate=3.0, width=2.0, incoherent=4.0, penalty=0.7)
    expected = []
    for row in SURPRISES:
        distance = (float(row.mean()) - 3.0) / 2.0
        expected.append(math.exp(-distance * distance / 2) - 0.7 * float((row > 4.0).double().mean()))
    assert reward(resources_of(REFERENCE), ROLLOUTS).tolist() == pytest.approx(expected, abs=1e-5)
    assert 0 < sum(float((row > 4.0).double().mean()) for row in SURPRISES) < 5


def test_the_value_is_largest_at_the_moderate_surprise_of_a_completion() -> None:
    resources = resources_of(REFERENCE)
    for index, row in enumerate(SURPRISES):
        mean = float(row.mean())
        at, *apart = (
            float(Surprisal(moderate=max(0.0, mean + shift), penalty=0.0)(resources, ROLLOUTS)[index])
            for shift in (0.0, 0.3, 0.6)
        )
        assert at == pytest.approx(1.0, abs=1e-5) and at > apart[0] > apart[1]


def test_text_of_the_environment_does_not_count() -> None:
    whole = ROLLOUTS[3]
    part = replace(whole, episode=RolloutEpisode(turns=(Turn(0, 2), Turn(4, 6))))
    kept = torch.cat([SURPRISES[3][:2], SURPRISES[3][4:]])
    value = Surprisal(moderate=float(kept.mean()), penalty=0.0)(resources_of(REFERENCE), [part])
    assert value.tolist() == pytest.approx([1.0], abs=1e-5)


def test_without_a_reference_it_is_refused() -> None:
    with pytest.raises(UserError, match="reward surprisal reads the reference, but the recipe has none"):
        Surprisal()(resources_of(None), ROLLOUTS)
