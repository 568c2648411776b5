"""Constraints that a program checks: each kind, the share that is met, and the verdict in evaluations."""

from __future__ import annotations

import json
from random import Random
from typing import Any, cast

import pytest

from models.answers.constraints import Constraint, Constraints, met
from models.base.errors import UserError
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.resources import RunResources
from models.parts.rewards.rules.constraints import ConstraintsMet
from models.task_sets.instructions import InstructionsSettings
from tests.support.malformed_texts import malformed, rollout

RESOURCES = cast(RunResources, None)
ASKED = [
    {"kind": "words", "least": 3, "most": 3},
    {"kind": "starts", "text": "red"},
    {"kind": "forbids", "text": "sea"},
]
PROBLEM = Problem("p", "write 3 words", json.dumps({"constraints": ASKED}))


@pytest.mark.parametrize(
    "constraint, meets, fails",
    [
        ({"kind": "words", "least": 2, "most": 3}, "Two words.", "now it is four"),
        ({"kind": "sentences", "least": 2}, "Once. Twice!", "Once, and no more..."),
        ({"kind": "paragraphs", "least": 2, "most": 2}, "a\nb\n\nc", "a\nb\nc"),
        ({"kind": "bullets", "least": 2}, "so:\n- a\n  * b", "- a\n-b"),
        ({"kind": "contains", "text": "red"}, "A (Red) hat", "a redder hat"),
        ({"kind": "contains", "text": "so on", "least": 2}, "so on, so on", "so on"),
        ({"kind": "contains", "text": "red", "most": 1}, "red hat", "red red"),
        ({"kind": "forbids", "text": "red"}, "a redder hat", "hats are red."),
        ({"kind": "starts", "text": "Good morning"}, "good morning, all", "morning"),
        ({"kind": "ends", "text": "the end"}, "This is the end.", "the end is near"),
        ({"kind": "lower"}, "small", "Small"),
        ({"kind": "upper"}, "LARGE 7", "LARGe"),
        ({"kind": "no_commas"}, "a; b", "a, b"),
        ({"kind": "json"}, '{"a": [1, null]}', "{'a': 1}"),
        ({"kind": "json"}, '```json\n{"a": 1}\n```', '```python\n{"a": 1}\n```'),
        ({"kind": "json", "keys": ["a", "b"]}, '{"b": 1, "a": 2, "c": 3}', '{"a": 1}'),
        ({"kind": "json", "keys": ["a"]}, '{"a": 1}', '["a"]'),
        ({"kind": "title"}, "<<The Sea>>\nIt is big.", "<< >> The Sea"),
        ({"kind": "title"}, "So: <<Sea>>.", "<<The\nSea>>"),
    ],
)
def test_each_kind_is_met_and_failed_as_its_name_says(constraint: dict[str, Any], meets: str, fails: str) -> None:
    asked = Constraints(constraints=(Constraint(**constraint),))
    assert (met(meets, asked), met(fails, asked)) == ([True], [False])


@pytest.mark.parametrize(
    "text, share", [("red hat here", 1.0), ("red hat", 2 / 3), ("a sea", 0.0), ("hat red sea", 1 / 3), ("", 0.0)]
)
def test_the_value_is_the_share_that_is_met_and_a_bonus_where_it_is_all(text: str, share: float) -> None:
    values = ConstraintsMet(bonus=0.5)(RESOURCES, [rollout(text, PROBLEM)])
    assert values.tolist() == pytest.approx([share + 0.5 * (share == 1.0)])
    assert ConstraintsMet().right([Attempt(PROBLEM, text, True)]) == [share == 1.0]


def test_what_was_cut_meets_nothing() -> None:
    assert ConstraintsMet()(RESOURCES, [rollout("red hat here", PROBLEM, finished=False)]).tolist() == [0.0]
    assert ConstraintsMet().right([Attempt(PROBLEM, "red hat here", False)]) == [False]


def test_whatever_is_written_has_a_share_under_every_kind() -> None:
    every = [{"kind": "bullets"}, {"kind": "sentences"}, {"kind": "paragraphs"}, {"kind": "json"}, {"kind": "lower"}]
    every += [
        {"kind": "upper"},
        {"kind": "no_commas"},
        {"kind": "ends", "text": "x"},
        {"kind": "contains", "text": "a a"},
    ]
    problem = Problem("p", "write", json.dumps({"constraints": [*ASKED, *every]}))
    values = ConstraintsMet()(RESOURCES, malformed(problem))
    assert bool(((values >= 0) & (values < 1)).all())


@pytest.mark.parametrize(
    "answer, reason",
    [
        ("7", "should be an object"),
        ('{"constraints": []}', "at least 1 item"),
        ('{"constraints": [{"kind": "starts"}]}', "text is missing"),
        ('{"constraints": [{"kind": "lower", "most": 3}]}', "nothing is counted"),
        ('{"constraints": [{"kind": "words", "least": 3, "most": 2}]}', "least is 3, more than most, 2"),
        ('{"constraints": [{"kind": "title", "keys": ["a"]}]}', "keys are for json only"),
    ],
)
def test_an_answer_that_is_no_constraints_is_the_problems_fault_and_named(answer: str, reason: str) -> None:
    with pytest.raises(UserError, match=f"problem p: the answer is none of.*{reason}"):
        ConstraintsMet()(RESOURCES, [rollout("red", Problem("p", "write", answer))])


@pytest.mark.parametrize("answer", ["", "{", "9" * 5000, "[" * 5000, '{"constraints": 3}'])
def test_a_broken_row_of_the_data_costs_its_own_completions_alone(answer: str) -> None:
    broken = Problem("b", "write", answer)
    values = ConstraintsMet()(RESOURCES, [rollout("red", broken), rollout("red hat here", PROBLEM)])
    assert values[0].isnan() and values[1] == 1.0
    assert ConstraintsMet().right([Attempt(broken, "red", True), Attempt(PROBLEM, "red hat here", True)]) == [
        False, True,
    ]  # fmt: skip


def test_sound_demonstrations_meet_all_constraints_and_the_others_do_not() -> None:
    settings, random = InstructionsSettings(problems={"train": 1}, short=0.4, forgot=0.5), Random(5)
    flaws = set()
    for _ in range(500):
        task = settings.draw(random)
        constraints = Constraints.model_validate_json(task.answer)
        assert all(met(task.steps[0], constraints)) and len(constraints.constraints) == task.level
        flaw, (text,) = settings.demonstrate(random, task)
        assert all(met(text, constraints)) == (flaw == "none")
        flaws.add(flaw)
    assert flaws == {"none", "short", "forgot"}
