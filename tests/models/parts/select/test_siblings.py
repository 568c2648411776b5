"""Pairs of siblings: the choice of the better turn."""

from dataclasses import replace

import torch

from models.method.scored import Scored
from models.parts.select.siblings import Siblings
from tests.support.tiny_models import scored


def nodes(values: list[float], solved: list[bool | None], sizes: list[int]) -> Scored:
    made = scored(values, sizes)
    rollouts = [
        replace(rollout, episode=replace(rollout.episode, solved=said))
        for rollout, said in zip(made.rollouts, solved, strict=True)
    ]
    return replace(made, rollouts=rollouts)


def test_the_better_value_of_a_node_wins_against_the_worst() -> None:
    seen = nodes([0.2, 0.9, 0.1, 0.5, 0.5, 0.3], [None] * 6, [3, 2, 1])
    assert Siblings()(seen).tolist() == [1, 2]
    assert Siblings(margin=0.9)(seen).tolist() == []


def test_a_failed_node_loses_whatever_it_is_worth() -> None:
    seen = nodes([0.9, 0.4, 0.1, 0.0], [False, True, False, True], [4])
    assert Siblings()(seen).tolist() == [1, 3]
    assert Siblings(failed_only=True)(seen).tolist() == [1, 2]
    assert Siblings()(nodes([0.9, 0.1], [False, False], [2])).tolist() == [0, 1]  # both failed: the lower value loses
    assert Siblings(failed_only=True)(nodes([0.9, 0.1], [False, False], [2])).tolist() == []
    assert Siblings()(nodes([0.9, 0.5], [False, True], [2])).tolist() == []  # the loser must not have the higher value


def test_failed_only_needs_a_sibling_that_reached_the_goal() -> None:
    assert Siblings(failed_only=True)(nodes([0.9, 0.0], [None, False], [2])).tolist() == []
    assert Siblings()(nodes([0.9, 0.0], [None, False], [2])).tolist() == [0, 1]


def test_what_carries_no_loss_is_in_no_pair() -> None:
    seen = nodes([0.9, 0.5, 0.1], [None] * 3, [3])
    held_back = [replace(seen.rollouts[0], trained=(False,)), *seen.rollouts[1:]]
    assert Siblings()(replace(seen, rollouts=held_back)).tolist() == [1, 2]
    assert Siblings()(seen.take(torch.tensor([], dtype=torch.long))).tolist() == []
