"""Advantages among samples: demonstrations change no baseline and have no advantage."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from models.method.problem import Origin
from models.method.scored import Scored
from models.parts.advantage.among_samples import AmongSamples
from models.parts.advantage.group_relative import GroupRelative
from tests.support.tiny_models import scored
from tests.support.tiny_resources import make_resources


def beside(rewards: Sequence[float], sizes: Sequence[int], demonstrations: set[int]) -> Scored:
    """Return scored groups in which the completions at the places `demonstrations` are answers from the data."""
    whole = scored(torch.tensor(rewards, dtype=torch.float64), sizes)
    origins: list[Origin] = ["demonstration" if place in demonstrations else "policy" for place in range(len(rewards))]
    rollouts = [
        replace(rollout, source=replace(rollout.source, origin=origin))
        for rollout, origin in zip(whole.rollouts, origins, strict=True)
    ]
    return replace(whole, rollouts=rollouts)


def test_an_answer_of_the_data_moves_no_baseline_and_has_no_advantage() -> None:
    advantages = AmongSamples(scale="none").of_completions(
        make_resources(), beside([1.0, 0.0, 9.0, 5.0, 4.0, 0.0], [3, 3], {2, 5})
    )
    assert advantages.tolist() == [0.5, -0.5, 0.0, 0.5, -0.5, 0.0]


def test_without_answers_of_the_data_it_is_group_relative() -> None:
    seen = beside([1.0, 0.0, 0.5, 2.0], [2, 2], set())
    torch.testing.assert_close(
        AmongSamples().of_completions(make_resources(), seen), GroupRelative().of_completions(make_resources(), seen)
    )


def test_a_round_of_nothing_but_data_has_no_advantage() -> None:
    assert AmongSamples().of_completions(make_resources(), beside([1.0, 0.0], [1, 1], {0, 1})).tolist() == [0.0, 0.0]
