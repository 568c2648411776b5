"""Metrics of a round: which completions they include, the share that is trained on, and the share of flat groups."""

from dataclasses import replace

import pytest
import torch

from models.method.problem import Origin
from models.method.scored import Scored
from models.training.round_metrics import rollout_metrics
from tests.support.tiny_models import scored


def round_of(*origins: Origin, untrained: tuple[int, ...] = ()) -> Scored:
    """Make a round in which completion i has reward i. Those at `untrained` have no tokens to train on."""
    plain = scored([float(i) for i in range(len(origins))], [len(origins)])
    plain = replace(plain, components={"verdict": 10 * plain.rewards})
    rollouts = [
        replace(
            rollout, source=replace(rollout.source, origin=origin), trained=(False,) if index in untrained else None
        )
        for index, (rollout, origin) in enumerate(zip(plain.rollouts, origins, strict=True))
    ]
    return replace(plain, rollouts=rollouts)


def test_baselines_opponents_and_answers_of_the_data_are_not_told_of_as_the_policys() -> None:
    everything = round_of("policy", "guide", "greedy", "reference", "explained", "demonstration")
    metrics = rollout_metrics(everything, everything)
    assert (metrics["reward/total"], metrics["reward/spread"], metrics["reward/verdict"]) == (0.5, 0.5, 5.0)


def test_where_the_policy_wrote_nothing_the_data_are_told_of() -> None:
    chosen = round_of("chosen", "rejected", "rejected")
    metrics = rollout_metrics(chosen, chosen)
    assert metrics["reward/total"] == 1.0 and metrics["rollouts/cut_share"] == 0.0


@pytest.mark.parametrize(("kept", "share"), [([0, 1, 2, 3], 1.0), ([0, 2], 0.5), ([1, 3], 0.5), ([3], 0.0)])
def test_the_share_that_is_trained_on_is_one_of_what_is_meant_to_be_trained_on(kept: list[int], share: float) -> None:
    everything = round_of("policy", "policy", "greedy", "greedy", untrained=(2, 3))
    assert rollout_metrics(everything, everything.take(torch.tensor(kept)))["rollouts/trained_share"] == share


@pytest.mark.parametrize(
    ("rewards", "groups", "share"),
    [
        ([1.0, 1.0, 0.0, 0.0], [2, 2], 1.0),
        ([1.0, 0.0, 0.0, 0.0], [2, 2], 0.5),
        ([1.0, 0.0, 0.5, 0.7, 0.7], [2, 3], 0.0),
        ([0.3, 0.1 + 0.2, 0.7, 0.9, 0.9, 0.9], [2, 4], 0.5),  # sums that differ only by rounding
        ([1.0, 0.0, 0.0, 0.0], [2, 1, 1], 0.0),  # a prompt with one completion is not a group
    ],
)
def test_the_flat_share_is_that_of_prompts_whose_completions_are_worth_the_same(
    rewards: list[float], groups: list[int], share: float
) -> None:
    everything = scored(rewards, groups)
    assert rollout_metrics(everything, everything)["rollouts/flat_share"] == share


def test_without_groups_there_is_no_flat_share() -> None:
    everything = scored([1.0, 0.0], [1, 1])
    assert "rollouts/flat_share" not in rollout_metrics(everything, everything)
