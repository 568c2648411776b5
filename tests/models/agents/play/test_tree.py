"""Trees of turns: backup of values, selection of the next node, and the optimum of a small decision process."""

import math
from dataclasses import replace
from typing import Any

import pytest

from models.agents.play.critique import VerdictCritique, by_likelihood
from models.agents.play.search import Search
from models.agents.play.tree import Growth, Node, Order, SearchTree, Valuing
from models.base.errors import UserError
from models.engines.engine import Sampling
from models.method.environment import EpisodeSettings
from models.method.episode import EpisodeLimits
from models.method.problem import Problem
from tests.support.tiny_resources import CODEC
from tests.support.tiny_trees import ACTIONS, BEST, DEPTH, Alike, Lottery, share_of_best, worth_of

PROBLEM = Problem("p", "1 +", "", tokens=tuple(CODEC.prompts(["1 +"])[0]))
GROWTH = Growth(order="uct", candidates=3, nodes=200, goals=0, exploration=1.0, valuing=Valuing())


def search(environment: Lottery | None = None, critique: Any = None, **growth: Any) -> Search:
    limits = EpisodeLimits(turns=DEPTH, turn_tokens=None, seconds=10, at_last_turn="kept", when_stuck="masked")
    return Search(
        engine=Alike(),
        codec=CODEC,
        episodes=EpisodeSettings(environment=environment or Lottery(), limits=limits, role="user"),
        sampling=Sampling(max_tokens=40),
        growth=replace(GROWTH, **growth),
        worth=lambda turns, solved: sum(turn.reward for turn in turns),
        critique=critique,
    )


def actions(node: Node) -> tuple[str, ...]:
    return tuple(passed.turn.text for passed in node.path)


def child(parent: Node, critique: float | None = None) -> Node:
    made = Node(parent, tokens=(len(parent.children),), critique=critique)
    parent.children.append(made)
    return made


def test_values_go_up_the_tree_by_hand() -> None:
    """root - a - a1 (worth 1, solved), a2 (0.5, not solved, visited twice) and root - b - b1 (0, not solved)."""
    root = Node()
    a, b = child(root), child(root, critique=0.9)
    a1, a2, b1 = child(a, critique=0.2), child(a), child(b)
    a1.ended(1.0, True)
    a2.over = True
    a2.ended(0.5, False)
    a2.again()
    b1.ended(0.0, False)
    mean, best = Valuing(), Valuing(backup="best")
    assert [node.visits for node in (root, a, a1, a2, b)] == [4, 3, 1, 2, 1]
    assert [node.value(mean) for node in (root, a, a2, b)] == [0.5, 2 / 3, 0.5, 0.0]
    a1.over = b1.over = True
    assert [node.value(best) for node in (root, a, b)] == [1.0, 1.0, 0.0]
    assert [node.reached for node in (root, a, a2, b, Node())] == [True, True, False, False, None]
    mixed = Valuing(critique_share=0.25)
    assert a1.value(mixed) == 0.75 * 1.0 + 0.25 * 0.2 and a.value(mixed) == 2 / 3
    assert b.failed and b.value(mixed) == 0.0  # the critique of 0.9 has no effect
    assert child(root, critique=0.4).value(mixed) == 0.4 and child(root).value(mixed) is None


def test_the_upper_bound_of_a_child_by_hand() -> None:
    tree = SearchTree(replace(GROWTH, candidates=2, exploration=1.0))
    a, b = child(tree.root), child(tree.root)
    tree.root.drawn = 2
    for worth in (1.0, 0.0, 1.0):
        a.ended(worth, None)
    b.ended(0.5, None)
    bounds = [2 / 3 + math.sqrt(math.log(4) / 4), 0.5 + math.sqrt(math.log(4) / 2)]
    assert bounds[1] > bounds[0] and [step.node for step in tree.next()] == [b]
    tree.growth = replace(tree.growth, exploration=0.1)
    assert [step.node for step in tree.next()] == [a]


@pytest.mark.parametrize("order", ["uct", "best", "breadth", "depth"])
def test_a_search_with_room_for_all_ends_at_the_enumerated_optimum(order: Order) -> None:
    [tree] = search(order=order, candidates=16, nodes=2000, valuing=Valuing(backup="best")).grow([PROBLEM], 3)
    leaves = {actions(node): node for node in tree.root.below() if node.over}
    assert len(leaves) == 27 and all(leaf.turn.reward == worth_of(path) for path, leaf in leaves.items())
    assert tree.root.value(tree.growth.valuing) == worth_of(BEST)
    node = tree.root
    while not node.over:
        node = max(node.children, key=lambda held: held.value(tree.growth.valuing) or 0.0)
    assert actions(node) == BEST


@pytest.mark.rotating(of=6)
def test_upper_bounds_reach_the_optimum_oftener_than_episodes_of_as_many_turns() -> None:
    """20 episodes of random turns reach the optimum with probability 1 - (26/27)^20; searches do so more often."""
    guided = search(Lottery(pays=share_of_best), nodes=60, exploration=0.6, candidates=6)
    trees = [tree for seed in range(4) for tree in guided.grow([PROBLEM] * 20, seed)]
    assert all(tree.drawn < 60 + DEPTH for tree in trees)
    assert sum(tree.root.solved > 0 for tree in trees) / len(trees) > 0.15 + 1 - (26 / 27) ** 20


def test_the_same_seed_grows_the_same_trees_whatever_stands_beside() -> None:
    def grown(problems: int, seed: int) -> list[list[tuple[str, ...]]]:
        return [
            [actions(node) for node in tree.root.below()] for tree in search(nodes=20).grow([PROBLEM] * problems, seed)
        ]

    assert grown(3, 5)[:2] == grown(2, 5) and grown(2, 5) != grown(2, 6)


def test_depth_first_goes_down_before_it_goes_aside_and_breadth_level_by_level() -> None:
    deep, broad = (search(order=order, nodes=nodes, goals=0) for order, nodes in (("depth", 9), ("breadth", 3)))
    [tree] = deep.grow([PROBLEM], 1)
    begun = [len([n for n in tree.root.below() if n.depth == depth and len(n.children) > 1]) for depth in range(DEPTH)]
    assert tree.root.visits and begun[0] <= 1 and all(count <= 1 for count in begun)
    [tree] = broad.grow([PROBLEM], 1)
    assert all(len(node.children) == 1 for node in tree.root.below() if 0 < node.depth < DEPTH)
    assert all(node.visits for node in tree.root.below())  # open branches were played to the end


def test_a_node_is_reached_by_replaying_its_turns_from_the_same_seed() -> None:
    environment = Lottery()
    [tree] = search(environment).grow([PROBLEM], 2)
    assert len(set(environment.opened)) == 1 and len(environment.opened) == sum(1 for _ in tree.root.below())
    for node in tree.root.below():
        if node.parent is not None:
            assert node.state == " ".join(actions(node)) and node.turn.state == node.parent.state


def test_an_environment_that_answers_otherwise_when_opened_again_is_refused() -> None:
    with pytest.raises(UserError, match="environment lottery cannot be searched: opened again with the same seed"):
        search(Lottery(forgetful=True)).grow([PROBLEM], 2)


@pytest.mark.parametrize("worth", [10**400, math.inf, math.nan, 1e39], ids=["huge", "inf", "nan", "1e39"])
def test_a_reward_that_training_cannot_hold_ends_its_own_branch_alone(worth: float) -> None:
    [tree] = search(Lottery(pays=lambda taken: worth if taken[0] == "1" else 0.5)).grow([PROBLEM], 2)
    ends = {(actions(node)[0] == "1", node.cut) for node in tree.root.below() if node.depth == DEPTH}
    assert ends == {(True, "error"), (False, "")}


def test_critiques_of_a_policy_that_knows_nothing_are_its_chances() -> None:
    [tree] = search(critique=by_likelihood, valuing=Valuing(critique_share=0.5)).grow([PROBLEM], 2)
    nodes = [node for node in tree.root.below() if node.parent is not None]
    assert {round(node.critique or 0, 12) for node in nodes} == {round(math.sqrt(1 / 3), 12)}
    said = VerdictCritique(Alike(), CODEC, "= ;", yes="1", no="2")([PROBLEM] * len(nodes), nodes)
    assert said == [0.5] * len(nodes)
    assert len(ACTIONS) == 3
