"""A tree of answers: bounds computed by hand on a small tree, and a policy that improves its answers by one."""

import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from models.agents.strategies.plain import Plain
from models.agents.strategies.refine_tree import RefinedAnswer, RefineTree, chosen_node, score_of
from models.agents.strategy import Strategic
from models.agents.turn_scorer import ScorerSettings
from models.engines.engine import Generated
from tests.support.tiny_strategies import BYTES, DRAWN, GREEDY, Scripted, ask_of, turns_of

TURN = Generated((1,), None, True)


def small_tree() -> tuple[RefinedAnswer, RefinedAnswer, RefinedAnswer, RefinedAnswer]:
    """Build a root scored 10 and 30, children scored 40 and 0, and a child of the first scored 60."""
    root = RefinedAnswer(TURN)
    root.add_score(10)
    root.add_score(30)
    nodes = [root]
    for parent, score in ((0, 40.0), (0, 0.0), (1, 60.0)):
        child = RefinedAnswer(TURN, nodes[parent])
        child.add_score(score)
        nodes[parent].children.append(child)
        child.back_up()
        nodes.append(child)
    return nodes[0], nodes[1], nodes[2], nodes[3]


def test_values_visits_and_bounds_of_a_small_tree_are_those_computed_by_hand() -> None:
    """root: (10 + 20) / 2 = 15, then (15 + 40) / 2 = 27.5, (27.5 + 40) / 2 = 33.75, (33.75 + 50) / 2 = 41.875."""
    root, first, second, third = small_tree()
    assert (third.value, third.visits) == (60.0, 1)
    assert (first.value, first.visits) == (50.0, 2)
    assert (second.value, second.visits) == (0.0, 1)
    assert (root.value, root.visits) == (41.875, 5)
    for node, expected in (
        (root, 41.875 + 2 * math.sqrt(math.log(6) / 5)),
        (first, 50.0 + 2 * math.sqrt(math.log(6) / 2)),
        (second, 0.0 + 2 * math.sqrt(math.log(6) / 1)),
        (third, 60.0 + 2 * math.sqrt(math.log(3) / 1)),
    ):
        assert node.uct(2.0) == pytest.approx(expected, rel=1e-15)
    assert list(root) == [root, first, second, third], "level by level"


def test_a_node_is_full_with_its_children_or_with_a_better_one() -> None:
    root, first, second, third = small_tree()
    assert root.is_full(2) and root.is_full(5), "the first child is better than the root"
    assert first.is_full(5) and not second.is_full(1) and not third.is_full(1)


def test_nodes_are_chosen_with_the_probabilities_of_the_three_rules() -> None:
    """Bounds without exploration are 41.875, 50, 0 and 60."""
    candidates = small_tree()
    bounds = [node.uct(0.0) for node in candidates]
    assert bounds == [41.875, 50.0, 0.0, 60.0]
    count, points = 20_000, random.Random(3)
    assert chosen_node(candidates, "greedy", 0.0, points) is candidates[3]
    shares = {"sample": [bound / sum(bounds) for bound in bounds]}
    pairs = {(i, j): abs(bounds[i] - bounds[j]) for j in range(4) for i in range(j)}
    better = [0.0] * 4
    for (i, j), weight in pairs.items():
        better[i if bounds[i] > bounds[j] else j] += weight / sum(pairs.values())
    shares["mixed"] = better
    for rule, expected in shares.items():
        times = Counter(chosen_node(candidates, rule, 0.0, points) for _ in range(count))  # type: ignore[arg-type]
        for node, share in zip(candidates, expected, strict=True):
            assert abs(times[node] / count - share) <= 4 * math.sqrt(share * (1 - share) / count)


@pytest.mark.parametrize("rule", ["greedy", "sample", "mixed"])
def test_an_unvisited_node_is_chosen_first(rule: str) -> None:
    nodes = [*small_tree(), RefinedAnswer(TURN)]
    assert chosen_node(nodes, rule, 1.0, random.Random(0)) is nodes[-1]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("80", 80.0),
        ("#### -3", -3.0),
        ("98", 93.0),
        ("Score: 95", 95.0),
        ("fine", -100.0),
        ("", -100.0),
        ("900", -100.0),
    ],
)
def test_a_score_is_read_within_its_bounds(text: str, score: float) -> None:
    assert score_of(text) == score


def improving(text: str, seed: int) -> str:
    """Answer 1 at first, one more than the last answer after a critique, and score an answer by ten times its value."""
    answer = text.rsplit("|", 1)[0].rsplit("#", 1)[-1] if "#" in text else ""
    if text.rstrip().endswith("grade"):
        return str(10 * int(answer))
    if text.rstrip().endswith("critique"):
        return f"too small #{answer}"
    if text.rstrip().endswith("improve"):
        return f"#{int(answer) + 1}"
    return "#1"


PROMPTS: Any = {"critique": "critique", "improve": "improve", "grade": "grade"}


@pytest.mark.parametrize("rule", ["greedy", "sample", "mixed"])
def test_a_policy_that_improves_its_answers_ends_with_the_best_of_them(rule: str) -> None:
    """Each better child makes its parent full, so that the tree is a chain: five refinements reach 6."""
    strategy = RefineTree(refinements=5, select=rule, **PROMPTS)  # type: ignore[arg-type]
    (turn,), policy = turns_of(strategy, Scripted(improving), [ask_of("Q", 4)], DRAWN)
    assert turn == "#6"
    assert policy.spent.calls == strategy.most_calls == 1 + 5 * 4


def test_by_a_scorer_answers_are_read_once_each_and_the_worse_are_left() -> None:
    class Values:
        read = 0

        def __init__(self) -> None:
            self.seen: list[str] = []

        def __call__(self, prompts: Sequence[Sequence[int]], turns: Sequence[Sequence[int]]) -> list[float]:
            texts = BYTES.text(turns)
            self.seen += texts
            return [{"#1": 0.1, "#2": 0.9, "#3": 0.3, "#4": 0.2}[text] for text in texts]

    values, strategy = Values(), RefineTree(refinements=2, scorer=ScorerSettings(name="reward_model"), **PROMPTS)
    strategic = Strategic(Scripted(improving), BYTES, strategy, 4096, values)
    (turn,) = strategic.complete([ask_of("Q", 4)], DRAWN)
    assert BYTES.text([turn.tokens]) == ["#2"] and values.seen == ["#1", "#2", "#3"]


@pytest.mark.parametrize("drawing", [DRAWN, GREEDY], ids=["drawn", "greedy"])
def test_without_refinements_the_turn_is_the_policys_own(drawing: object) -> None:
    requests = [ask_of("Q", seed) for seed in range(5)]
    policy = Scripted(lambda text, seed: f"{text} {seed}")
    for strategy in (RefineTree(refinements=0), RefineTree().at_budget(1)):
        turns, counted = turns_of(strategy, policy, requests, drawing)  # type: ignore[arg-type]
        assert turns == turns_of(Plain(), policy, requests, drawing)[0]  # type: ignore[arg-type]
        assert counted.spent.calls == 5


def test_a_rewritten_answer_without_room_leaves_the_first_answer() -> None:
    (turn,), policy = turns_of(
        RefineTree(refinements=2, **PROMPTS), Scripted(improving), [ask_of("Q", 4, 8)], DRAWN, room=12
    )
    assert turn == "#1" and policy.spent.no_room > 0
