"""The environment `graph_prompts`: the network against a reference in loops, the reward, the optimum by enumeration."""

import json
from itertools import product
from math import comb, exp, log, sqrt
from random import Random

import numpy as np
import pytest

from models.agents.environments.graph_prompts import GraphPrompts, least_loss
from models.agents.play.graph_network import (
    KINDS,
    PROMPTS,
    SOURCE,
    STRENGTH,
    KindGraph,
    choices,
    graph_network,
    prompted,
    random_graph,
)
from models.agents.small_sets.graph_prompts import SET
from models.base.errors import UserError
from models.method.environment import EnvironmentAnswer
from models.method.problem import Problem

GRAPH = KindGraph("cad", ((0, 1), (1, 2)))


def problem(graph: KindGraph = GRAPH, label: int = 1) -> Problem:
    return Problem("p", "graph", json.dumps({"kinds": graph.kinds, "edges": graph.edges, "label": label}))


def play(environment: GraphPrompts, turns: list[str]) -> list[EnvironmentAnswer]:
    opened = environment.open(problem())
    assert opened.reset(0)[0] == ""
    return [opened.step(turn) for turn in turns]


def reference_loss(graph: KindGraph, label: int, features: list[list[float]]) -> float:
    network, nodes = graph_network(), range(len(graph.kinds))
    near = [[at for at in nodes if at == node or (min(at, node), max(at, node)) in graph.edges] for node in nodes]
    hidden = features
    for weights, offset in network._layers:
        mixed = [
            [
                sum(hidden[at][column] / sqrt(len(near[node]) * len(near[at])) for at in near[node])
                for column in range(len(hidden[0]))
            ]
            for node in nodes
        ]
        hidden = [
            [
                max(0.0, sum(row[i] * weights[i, unit] for i in range(len(row))) + offset[unit])
                for unit in range(len(offset))
            ]
            for row in mixed
        ]
    mean = [sum(row[unit] for row in hidden) / len(hidden) for unit in range(len(hidden[0]))]
    margin = sum(value * weight for value, weight in zip([*mean, 1.0], network._readout, strict=True))
    return log(1 + exp(-margin if label else margin))


def test_the_loss_is_that_of_a_graph_convolution_in_loops() -> None:
    features = [[float(kind == each) for each in KINDS] for kind in GRAPH.kinds]
    assert graph_network().loss(GRAPH, 1) == pytest.approx(reference_loss(GRAPH, 1, features), abs=1e-12)
    features[1][KINDS.index("b")] -= 2 * STRENGTH
    features[2][KINDS.index("a")] += STRENGTH
    prompts = [(1, "-b"), (2, "+a"), (1, "-b")]
    assert graph_network().loss(GRAPH, 0, prompts) == pytest.approx(reference_loss(GRAPH, 0, features), abs=1e-12)


def test_the_network_knows_its_own_task_and_not_the_one_of_the_set() -> None:
    network, random = graph_network(), np.random.default_rng(5)
    right: dict[str, list[bool]] = {SOURCE: [], "cd": []}
    for _ in range(400):
        graph = random_graph(random, 5, KINDS)
        for pair, verdicts in right.items():
            counts = [graph.kinds.count(kind) for kind in pair]
            if counts[0] != counts[1]:
                verdicts.append(bool(network.margin(graph, graph.features) > 0) == (counts[0] < counts[1]))
    assert np.mean(right[SOURCE]) > 0.95 and abs(np.mean(right["cd"]) - 0.5) < 0.15


def test_rewards_are_decreases_of_the_loss_and_their_sum_is_that_of_the_episode() -> None:
    answers = play(GraphPrompts(prompts=2), ["1 +b", "3 -a"])
    losses = [graph_network().loss(GRAPH, 1, prompts) for prompts in ([], [(0, "+b")], [(0, "+b"), (2, "-a")])]
    assert [answer[1] for answer in answers] == pytest.approx([losses[0] - losses[1], losses[1] - losses[2]])
    assert [answer[0] for answer in answers] == [f"{loss:.2f}" for loss in losses[1:]]
    assert [answer[2] for answer in answers] == [False, True]


def test_every_choice_of_prompts_is_enumerated_and_the_best_one_reaches_the_goal() -> None:
    every = list(choices(3, 2))
    assert len(every) == comb(3 * len(PROMPTS) + 1, 2) == len({tuple(sorted(each)) for each in every})
    environment = GraphPrompts(prompts=2, near=1.0)
    words = [f"{node + 1} {word}" for node, word in product(range(3), PROMPTS)]
    played = {turns: play(environment, list(turns)) for turns in product(words, repeat=2)}
    gains = {turns: answers[0][1] + answers[1][1] for turns, answers in played.items()}
    best = max(gains.values())
    assert best == pytest.approx(graph_network().loss(GRAPH, 1) - least_loss(GRAPH, 1, 2), abs=1e-12)
    solved = {turns for turns, answers in played.items() if answers[-1][4]["solved"]}
    assert solved == {turns for turns, gain in gains.items() if gain >= best - 1e-9}
    assert not any(answers[0][4]["solved"] for answers in played.values())


def test_the_order_of_prompts_does_not_matter() -> None:
    features = GRAPH.features
    assert (prompted(features, [(0, "+a"), (1, "-d")]) == prompted(features, [(1, "-d"), (0, "+a")])).all()
    assert (features == GRAPH.features).all()


def test_random_prompts_hardly_ever_reach_the_goal_and_nodes_and_words_both_matter() -> None:
    random, network = Random(2), graph_network()
    solved: dict[str, list[bool]] = {"random": [], "one node": [], "best node": []}
    for _ in range(25):
        known = json.loads(SET.draw(random).answer)
        graph, label = KindGraph(known["kinds"], tuple(map(tuple, known["edges"]))), known["label"]
        first = network.loss(graph, label)
        most = first - least_loss(graph, label, 3)

        def reaches(prompts: list[tuple[int, str]], first: float = first, most: float = most) -> bool:
            return first - network.loss(graph, label, prompts) >= 0.95 * most  # noqa: B023

        words = ("+b", "-a") if label else ("+a", "-b")
        solved["random"].append(reaches([(random.randrange(5), random.choice(PROMPTS)) for _ in range(3)]))
        solved["one node"].append(any(reaches([(0, word)] * 3) for word in words))
        solved["best node"].append(any(reaches([(node, word)] * 3) for node in range(5) for word in words))
    share = {name: float(np.mean(values)) for name, values in solved.items()}
    assert share["random"] < 0.15 and share["one node"] < 0.8 < share["best node"]


def test_an_unreadable_turn_is_answered_and_changes_nothing() -> None:
    answers = play(GraphPrompts(prompts=1), ["4 +a", "1 a", " 2 +a\n"])
    assert [answer[:4] for answer in answers[:2]] == [("error: node +a", 0.0, False, False)] * 2
    assert answers[2] == play(GraphPrompts(prompts=1), ["2 +a"])[0]
    assert answers[0][4]["actions"][0] == "1 +a" and len(answers[0][4]["actions"]) == 24


def test_an_answer_of_another_kind_and_too_many_choices_are_refused() -> None:
    with pytest.raises(UserError, match="problem p: "):
        GraphPrompts().open(Problem("p", "graph", json.dumps({"kinds": "xy", "edges": [], "label": 1})))
    with pytest.raises(UserError, match=r"an edge names a node that the graph does not have \(0 to 2\)"):
        GraphPrompts().open(problem(KindGraph("abc", ((0, 3),))))
    with pytest.raises(UserError, match="5 nodes have 123410 choices of prompts, and at most 50000 are compared"):
        GraphPrompts(prompts=4).open(problem(KindGraph("abcda", ((0, 1), (1, 2), (2, 3), (3, 4)))))
