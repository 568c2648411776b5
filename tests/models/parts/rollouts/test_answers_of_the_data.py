"""Completions that the data hold: preferences, flawed demonstrations, and their place after the samples."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
import torch

from models.engines.engine import Generated, Sampling
from models.method.problem import KnownAnswer, Problem
from models.parts.rewards.shaping.of_origin import OfOrigin
from models.parts.rollouts.beside_data import BesideData
from models.parts.rollouts.dataset import Dataset
from models.parts.rollouts.sample import Sample
from tests.support.tiny_loops import PROBLEMS
from tests.support.tiny_resources import make_resources


class Canned:
    """An engine that returns token 5 and the end token for every sample."""

    dtype = torch.float32

    def generate(self, prompts: Sequence[tuple[int, ...]], sampling: Sampling, seed: int) -> list[list[Generated]]:
        from models.engines.engine import Generated

        return [[Generated((5, 1), torch.tensor([-0.5, -0.25]), True)] * sampling.samples for _ in prompts]


PAIR = (
    KnownAnswer("chosen", (4, 1), "4", reference_log_probs=torch.tensor([-1.0, -2.0])),
    KnownAnswer("rejected", (6, 7, 1), "6 7", "slip"),
)
SHOWN = tuple(
    KnownAnswer("demonstration", (token, 1), str(token), flaw) for token, flaw in ((8, ""), (9, "slip"), (3, ""))
)
RESOURCES = make_resources(cast(Any, Canned()), seed=3)


def with_known(known: tuple[KnownAnswer, ...]) -> list[Problem]:
    return [replace(problem, known=known) for problem in PROBLEMS[:3]]


def test_a_preference_gives_its_two_answers_side_by_side_with_all_that_is_known_of_them() -> None:
    rollouts = Dataset(prompts=3)(RESOURCES, with_known(PAIR), 0)
    assert [(rollout.group, rollout.source.origin) for rollout in rollouts] == [
        (number, origin) for number in range(3) for origin in ("chosen", "rejected")
    ]
    carried = rollouts[0].reference_log_probs
    assert rollouts[0].completion == (4, 1) and carried is not None and carried.tolist() == [-1.0, -2.0]
    assert rollouts[1].source.flaw == "slip" and rollouts[1].behaviour_log_probs is None and rollouts[1].finished


def test_the_better_answer_of_a_preference_is_worth_one_without_any_model() -> None:
    rollouts = Dataset()(RESOURCES, with_known(PAIR), 0)
    assert OfOrigin()(RESOURCES, rollouts).tolist() == [1.0, 0.0] * 3


@pytest.mark.parametrize(("flawed", "worth"), [(None, [1.0, 1.0, 1.0]), (0.25, [1.0, 0.25, 1.0])])
def test_flawed_demonstrations_are_worth_what_the_recipe_says(flawed: float | None, worth: list[float]) -> None:
    rollouts = Dataset(reads="demonstrations")(RESOURCES, with_known(SHOWN)[:1], 0)
    assert OfOrigin(flawed=flawed)(RESOURCES, rollouts).tolist() == worth


def test_what_an_engine_drew_has_a_value_of_its_own() -> None:
    rollouts = Sample(group_size=2)(RESOURCES, PROBLEMS[:1], 0)
    assert OfOrigin(other=-0.5)(RESOURCES, rollouts).tolist() == [-0.5, -0.5]


def test_answers_stand_behind_the_samples_of_their_own_prompt() -> None:
    rollouts = BesideData(group_size=2, known=2)(RESOURCES, with_known(SHOWN), 5)
    assert [rollout.group for rollout in rollouts] == [0] * 4 + [1] * 4 + [2] * 4
    assert [rollout.source.origin for rollout in rollouts[:4]] == ["policy", "policy", "demonstration", "demonstration"]
    assert rollouts[2].completion != rollouts[3].completion


def test_which_answers_stand_beside_is_drawn_by_seed_and_round_alone() -> None:
    source, problems = BesideData(group_size=1, known=1), with_known(SHOWN)
    drawn = [
        tuple(rollout.completion for rollout in source(RESOURCES, problems, number)) for number in (0, 0, *range(1, 9))
    ]
    assert drawn[0] == drawn[1] and len(set(drawn)) > 1


def test_a_prompt_with_fewer_answers_than_wanted_gives_what_it_has() -> None:
    rollouts = BesideData(group_size=1, known=3)(RESOURCES, with_known(SHOWN[:1]), 0)
    assert [rollout.source.origin for rollout in rollouts] == ["policy", "demonstration"] * 3
    assert BesideData(group_size=4, known=3).largest_group() == 7
