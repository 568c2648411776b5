"""The rewards `ndcg` and `label_set`: values by hand, another implementation, limiting cases and broken rows."""

from __future__ import annotations

import json
import math
from itertools import permutations
from random import Random
from typing import cast

import pytest
import torch

from models.answers.listed import f_beta, listed_names, ndcg
from models.base.errors import UserError
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.resources import RunResources
from models.parts.rewards.rules.label_set import LabelSet
from models.parts.rewards.rules.ndcg import Ndcg
from models.parts.shared.plackett_luce import discounted_gain
from tests.support.malformed_texts import malformed, rollout

RESOURCES = cast(RunResources, None)
GAINS = {"steel": 3.0, "farms": 1.0, "roads": 2.0, "mines": 0.0}
PROBLEM = Problem("p", "budget", json.dumps({"relevance": GAINS}))


def value(reward: Ndcg | LabelSet, text: str, finished: bool = True) -> float:
    return float(reward(RESOURCES, [rollout(text, PROBLEM, finished=finished)])[0])


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("so: #### Steel > farms, 'Roads'; mines.", ["steel", "farms", "roads", "mines"]),
        ("#### oil and gas | iron  ore", ["oil", "gas", "iron ore"]),
        ("#### sandals, thousand", ["sandals", "thousand"]),
        ("<answer>steel > roads</answer>", ["steel", "roads"]),
        ("steel > roads", []),
        ("#### , ;", []),
    ],
)
def test_a_list_is_read_from_the_stated_answer(text: str, names: list[str]) -> None:
    assert listed_names(text) == names


def test_the_gain_of_a_ranking_by_hand() -> None:
    best = 3 + 2 / math.log2(3) + 1 / 2
    assert value(Ndcg(), "#### steel > roads > farms") == pytest.approx(1.0)
    assert value(Ndcg(), "#### roads > steel") == pytest.approx((2 + 3 / math.log2(3)) / best)
    assert value(Ndcg(), "#### mines > steel") == pytest.approx(3 / math.log2(3) / best)  # no gain takes a place
    assert value(Ndcg(), "#### steel > steel > roads") == pytest.approx((3 + 2 / 2) / best)  # a repetition does too
    assert value(Ndcg(first=1), "#### roads > steel") == pytest.approx(2 / 3)


def test_it_equals_the_gain_of_rankings_in_tensors() -> None:
    chance = Random(0)
    for _ in range(20):
        gains = {f"n{number}": float(chance.randrange(4)) for number in range(5)} | {"n5": 1.0}
        order = chance.sample(list(gains), len(gains))
        rankings = torch.tensor([[list(gains).index(name) for name in order]])
        for first in (1, 3, 6):
            expected = discounted_gain(torch.tensor(list(gains.values())), rankings, first)
            assert ndcg(order, gains, first) == pytest.approx(float(expected[0]), abs=1e-12)


def test_only_rankings_by_falling_gain_reach_one() -> None:
    best = [order for order in permutations(GAINS) if ndcg(order, GAINS) > 1 - 1e-12]
    assert best == [("steel", "roads", "farms", "mines")]


def test_f_beta_by_hand_and_at_its_limits() -> None:
    assert f_beta(["a", "b", "x"], ["a", "b", "c", "d"]) == pytest.approx(2 * (2 / 3) * (1 / 2) / (2 / 3 + 1 / 2))
    assert f_beta(["a", "x"], ["a", "b", "c"], 1e-6) == pytest.approx(1 / 2)  # precision
    assert f_beta(["a", "x"], ["a", "b", "c"], 1e6) == pytest.approx(1 / 3)  # recall
    assert f_beta([], ["a"]) == f_beta(["x"], ["a"]) == 0.0
    precision, recall = 2 / 3, 2 / 4
    assert 1 / f_beta(["a", "b", "x"], ["a", "b", "c", "d"]) == pytest.approx((1 / precision + 1 / recall) / 2)


def test_labels_count_in_any_order_and_once() -> None:
    assert value(LabelSet(), "#### farms, roads, steel") == 1.0
    assert value(LabelSet(), "#### farms, farms, farms") == pytest.approx(2 * 1 * (1 / 3) / (1 + 1 / 3))
    assert value(LabelSet(), "#### farms, roads, steel, mines") == pytest.approx(2 * (3 / 4) / (3 / 4 + 1))


def test_evaluations_count_whole_answers_and_grade_the_rest() -> None:
    attempts = [Attempt(PROBLEM, text, True) for text in ("#### steel > roads > farms", "#### roads > steel > farms")]
    assert Ndcg().right(attempts) == [True, False] and LabelSet().right(attempts) == [True, True]
    assert Ndcg(right_from=0.8).verifies and not Ndcg().verifies and not LabelSet().verifies
    assert Ndcg(right_from=0.8).right(attempts) == [True, True]
    assert Ndcg().grade(attempts)[1] == pytest.approx(value(Ndcg(), "#### roads > steel > farms"))
    for reward in (Ndcg(), LabelSet()):
        stated = reward.stated(PROBLEM)
        assert stated is not None and reward.right([Attempt(PROBLEM, stated, True)]) == [True]


def test_labels_of_a_list_and_of_a_whole_completion() -> None:
    seen, empty = Problem("q", "describe", "red square topleft ; blue circle topright"), Problem("r", "describe", " ; ")
    reward = LabelSet(reads="whole", right_from=1.0)
    texts = (
        "blue circle topright ; red square topleft",
        "red square topleft",
        "red square topleft ; red circle topright",
        "<think> red square topleft </think> blue circle topright",
    )
    values = reward(RESOURCES, [rollout(text, seen) for text in texts])
    assert values.tolist() == pytest.approx([1.0, 2 / 3, 1 / 2, 2 / 3])
    assert reward.right([Attempt(seen, text, True) for text in texts]) == [True, False, False, False]
    assert reward.stated(seen) == seen.answer and LabelSet().stated(seen) == f"#### {seen.answer}"
    assert value(LabelSet(), "#### roads, steel, farms") == 1.0  # JSON next to lists
    assert reward.accepts([seen, empty, PROBLEM]) == [True, False, True]
    assert reward.stated(empty) is None


@pytest.mark.parametrize("reward", [Ndcg(), LabelSet(), LabelSet(reads="whole")])
def test_a_cut_completion_and_a_text_of_any_form_are_worth_nothing_or_less_than_all(reward: Ndcg | LabelSet) -> None:
    assert value(reward, "#### steel > roads > farms", finished=False) == 0.0
    values = reward(RESOURCES, malformed(PROBLEM))
    assert bool(((values >= 0) & (values < 1)).all())


@pytest.mark.parametrize("reward", [Ndcg(), LabelSet()])
def test_a_row_that_cannot_be_read_has_no_value_and_data_without_gains_are_refused(reward: Ndcg | LabelSet) -> None:
    broken = Problem("q", "budget", '{"relevance": {"steel": 0}}')
    values = reward(RESOURCES, [rollout("#### steel", PROBLEM), rollout("#### steel", broken)])
    assert values[0] > 0 and values[1].isnan()
    assert reward.accepts([PROBLEM, broken]) == [True, False]
    with pytest.raises(UserError, match=r"problem q: .*every gain is 0"):
        reward.accepts([broken])
