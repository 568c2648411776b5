"""The environment `task_sequence`: rewards of calls by hand, the order of the tasks, and the end of an episode."""

import json
from dataclasses import replace
from random import Random

import pytest

from models.agents.environments.task_sequence import TaskSequence
from models.agents.play.named_calls import Expected
from models.agents.small_sets.task_sequence import FORMS, SET, SKILLS
from models.base.errors import UserError
from models.method.environment import EnvironmentAnswer
from models.method.problem import Problem
from models.parts.rewards.rules.call_match import CallWeights

CALLS = [
    {"name": "take", "arguments": {"what": "cup", "from": "sofa"}},
    {"name": "put", "arguments": {"what": "cup", "on": "desk"}},
]
TAKE, PUT = (json.dumps(call) for call in CALLS)
PROBLEM = Problem(
    "p", "get the mug from the couch and put it on the desk", json.dumps({"tools": SKILLS, "calls": CALLS})
)


def play(turns: list[str], problem: Problem = PROBLEM) -> list[EnvironmentAnswer]:
    opened = TaskSequence().open(problem)
    opened.reset(0)
    answers = []
    for turn in turns:
        answers.append(opened.step(turn))
        if answers[-1][2]:
            break
    return answers


def test_right_calls_in_their_order_earn_one_and_solve() -> None:
    answers = play([TAKE, PUT, "done"])
    assert [answer[1] for answer in answers] == [0.5, 0.5, 0.0]
    assert answers[-1][2] and answers[-1][4]["solved"] and not answers[1][4]["solved"]


def test_calls_in_another_order_earn_what_they_share() -> None:
    answers = play([PUT, TAKE, "done"])
    # no name, one of three parameters (what), one of two values (the cup)
    assert [answer[1] for answer in answers[:2]] == [pytest.approx((0 + 1 / 3 + 1 / 2) / 3 / 2)] * 2
    assert not answers[-1][4]["solved"]


def test_a_call_too_few_or_too_many_does_not_solve() -> None:
    early = play([TAKE, "done"])
    assert early[-1][2] and sum(answer[1] for answer in early) == 0.5 and not early[-1][4]["solved"]
    late = play([TAKE, PUT, PUT])
    assert late[-1][2] and sum(answer[1] for answer in late) == 0.5 and not late[-1][4]["solved"]


def test_the_agreement_is_that_of_the_reward_call_match() -> None:
    weights, random = CallWeights(format=0.0, scale=1.0), Random(1)
    for _ in range(100):
        task, other = (json.loads(SET.draw(random).answer)["calls"] for _ in range(2))
        turn = json.dumps(other[0])
        problem = Problem("p", "", json.dumps({"tools": SKILLS, "calls": task[:1]}))
        worth = weights.worth(turn, Expected(tools=SKILLS, **task[0]))
        assert play([turn], problem)[0][1] == pytest.approx((worth + 1) / 2)


def test_answers_do_not_reveal_what_was_right() -> None:
    assert {answer[0] for answer in play([TAKE, "no call"])} == {"next"}


def test_scripted_calls_solve_and_calls_of_other_instructions_do_not() -> None:
    random, small = Random(5), replace(SET, sound=1.0)
    right, wrong = [], []
    for _ in range(50):
        task, other = small.draw(random), small.draw(random)
        problem = Problem("p", task.prompt, task.answer)
        right.append(play(list(small.script(random, task)[1]), problem)[-1][4]["solved"])
        wrong.append(play(list(small.script(random, other)[1]), problem)[-1][4]["solved"])
    assert all(right) and sum(wrong) <= 3


def test_every_skill_occurs_and_its_parameters_are_those_of_its_calls() -> None:
    random = Random(0)
    calls = [call for _ in range(200) for call in json.loads(SET.draw(random).answer)["calls"]]
    assert {call["name"] for call in calls} == set(SKILLS) == {skill for skill, _, _ in FORMS}
    assert all(tuple(call["arguments"]) == SKILLS[call["name"]] for call in calls)


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ("", "problem p: the answer is none of environment task_sequence"),
        ('{"tools": {}, "calls": []}', "problem p: the answer is none of environment task_sequence \\(calls"),
        (
            '{"tools": {}, "calls": [{"name": "fly", "arguments": {}}]}',
            "problem p: the call 'fly' is none of its tools",
        ),
    ],
)
def test_a_problem_that_does_not_fit_is_refused_in_a_line(answer: str, line: str) -> None:
    with pytest.raises(UserError, match=line):
        TaskSequence().open(Problem("p", "", answer))
