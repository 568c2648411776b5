"""Graphs of questions: the order of questions in every graph of three, and the prompt of each question."""

from itertools import permutations, product

import pytest

from models.agents.strategies.prompt_graph import PromptGraph, Question, order_of
from models.base.errors import UserError
from models.recipes.strategy import read_strategy
from tests.support.tiny_strategies import Scripted, ask_of, turns_of

NAMES = "abc"
ARCS = [(first, second) for first in NAMES for second in NAMES]


def every_graph() -> list[list[Question]]:
    graphs = []
    for chosen in product((False, True), repeat=len(ARCS)):
        arcs = [arc for arc, there in zip(ARCS, chosen, strict=True) if there]
        graphs.append(
            [
                Question(name=name, ask=name, after=tuple(first for first, last in arcs if last == name))
                for name in NAMES
            ]
        )
    return graphs


def test_of_all_graphs_of_three_those_with_a_cycle_are_refused_and_the_others_are_ordered() -> None:
    cyclic = ordered = 0
    for graph in every_graph():
        orders = [
            order
            for order in permutations(NAMES)
            if all(order.index(name) < order.index(q.name) for q in graph for name in q.after)
        ]
        ends = [q.name for q in graph if not any(q.name in other.after for other in graph)]
        try:
            flat = [name for level in order_of(graph) for name in level]
        except ValueError as error:
            if not orders:
                cyclic += 1
                named = str(error).removeprefix("questions wait for one another: ").split(" -> ")
                assert named[0] == named[-1] and set(named) <= set(NAMES) and len(named) == len(set(named)) + 1
                waits = {(before, q.name) for q in graph for before in q.after}
                assert all(pair in waits for pair in zip(named[1:], named, strict=False)), (named, waits)
            else:
                assert len(ends) != 1 and all(name in str(error) for name in ends)
            continue
        ordered += 1
        assert tuple(flat) in orders and flat[-1:] == ends
    assert (cyclic, ordered) == (512 - 25, 15)  # of 25 acyclic graphs of three labelled nodes 15 have a single end


def test_a_cycle_is_refused_in_a_line_that_names_its_questions() -> None:
    cycle = "strategy.questions=[{name: goal, ask: g, after: [act]}, {name: act, ask: a, after: [goal]}]"
    with pytest.raises(
        UserError, match=r"^strategy: questions wait for one another: (goal -> act -> goal|act -> goal -> act)$"
    ):
        read_strategy("prompt_graph", [cycle])
    with pytest.raises(UserError, match="strategy: act waits for plan, which is not a question"):
        read_strategy("prompt_graph", ["strategy.questions=[{name: act, ask: a, after: [plan]}]"])


def test_every_question_is_asked_once_with_the_answers_that_it_waits_for_alone() -> None:
    graph = PromptGraph(
        questions=(
            Question(name="act", ask="act?", after=("near", "far")),
            Question(name="near", ask="near?"),
            Question(name="far", ask="far?", after=("near",)),
            Question(name="plan", ask="plan?", after=("far",)),
            Question(name="last", ask="last?", after=("act", "plan")),
        ),
        context="rules",
    )
    policy = Scripted(lambda text, seed: f"<{text.splitlines()[-1]}>")
    (turn,), asked = turns_of(graph, policy, [ask_of("Q")])
    assert turn == "<last?>" and asked.spent.calls == 5 == graph.most_calls - 1
    assert policy.heard == [
        "Q|\nrules\nnear?\n",
        "Q|\nrules\nnear?\n<near?>\nfar?\n",
        "Q|\nrules\nnear?\n<near?>\nfar?\n<far?>\nact?\n",
        "Q|\nrules\nfar?\n<far?>\nplan?\n",
        "Q|\nrules\nact?\n<act?>\nplan?\n<plan?>\nlast?\n",
    ]


def test_where_the_last_question_fails_the_turn_is_the_policys_own() -> None:
    policy = Scripted(lambda text, seed: "own" if text == "Q" else "x" * 99)
    graph = PromptGraph()
    (turn,), asked = turns_of(graph, policy, [ask_of("Q")])
    assert turn == "own" and asked.spent.calls == graph.most_calls
