"""A tree of answers: bounds computed by hand on a small tree, and a policy that improves its answers by one."""

import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from models.agents.strategies.plain import Plain
from models.agents.strategies.refine_tree import RefinedAnswer, RefineTree, SelectionRule, chosen_node, score_of
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


def tree_of(*scores: float, below: float) -> list[RefinedAnswer]:
    """Build a root scored 0 with children of these scores, and a child of the first that is scored `below`."""
    root = RefinedAnswer(TURN)
    root.add_score(0)
    nodes = [root]
    for parent, score in (*((0, score) for score in scores), (1, below)):
        child = RefinedAnswer(TURN, nodes[parent])
        child.add_score(score)
        nodes[parent].children.append(child)
        nodes.append(child)
    return nodes


def shares_of(candidates: Sequence[RefinedAnswer], rule: SelectionRule, count: int = 20_000) -> list[float]:
    points = random.Random(3)
    times = Counter(chosen_node(candidates, rule, 0.0, points) for _ in range(count))
    return [times[node] / count for node in candidates]


@pytest.mark.parametrize(
    ("scores", "rule", "expected"),
    [
        ((60, 50), "sample", [0, 60 / 110, 50 / 110, 0]),
        ((60, -20, 20), "sample", [0, 0.75, 0, 0.25, 0]),
        ((-60, -20), "sample", [0.25, 0.25, 0.25, 0.25]),
        ((60, 50), "pairwise", [0, 1, 0, 0]),
        ((60, 50, 10), "pairwise", [0, 0.6, 0.4, 0, 0]),
        ((40, 40), "pairwise", [0.25, 0.25, 0.25, 0.25]),
    ],
)
def test_only_children_of_the_root_are_drawn_by_their_bounds(
    scores: tuple[float, ...], rule: SelectionRule, expected: list[float]
) -> None:
    """The pairs of 60, 50 and 10 have the weights 10, 50 and 40, so the first wins with 0.1 + 0.5."""
    count = 20_000
    drawn = shares_of(tree_of(*scores, below=90), rule, count)
    for actual, share in zip(drawn, expected, strict=True):
        assert abs(actual - share) <= 4 * math.sqrt(share * (1 - share) / count)


def test_greedily_the_root_comes_first_and_then_the_highest_bound_plus_the_equilibrium() -> None:
    candidates, points = tree_of(60, 50, below=60.4), random.Random(0)
    assert chosen_node(candidates, "greedy", 0.0, points) is candidates[0]
    assert chosen_node(candidates[1:], "greedy", 0.0, points) is candidates[1], "60 + 1/2 against 60.4"
    higher = tree_of(60, 50, below=60.6)
    assert chosen_node(higher[1:], "greedy", 0.0, points) is higher[3]


@pytest.mark.parametrize("rule", ["greedy", "sample", "pairwise"])
def test_an_unvisited_node_is_chosen_first(rule: str) -> None:
    nodes = [*small_tree()[1:], RefinedAnswer(TURN, small_tree()[0])]
    assert chosen_node(nodes, rule, 1.0, random.Random(0)) is nodes[-1]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("80", 80.0),
        ("#### -3", -3.0),
        ("98", 93.0),
        ("Score: 95", 95.0),
        ("80 out of 100", -100.0),
        ("85 (from -100 to 100)", -100.0),
        ("It is 5 better than 60. #### 65", 65.0),
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


@pytest.mark.parametrize("rule", ["greedy", "sample", "pairwise"])
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
