"""Rewards of right answers, abstentions and invented answers, and the extra cost of a confident error."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random
from typing import cast

import pytest
import torch

from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.resources import RunResources
from models.parts.rewards.rules.abstention import Abstention
from models.task_sets.passages import SHOWN, UNKNOWN, PassagesSettings
from tests.support.malformed_texts import malformed, rollout

RESOURCES = cast(RunResources, None)
ANSWERED, OPEN = Problem("a", "river ?", "tosik"), Problem("o", "dish ?", "unknown")


@pytest.mark.parametrize(
    "problem, text, value",
    [
        (ANSWERED, "#### Tosik", 1.0),
        (ANSWERED, "#### unknown", -0.2),
        (ANSWERED, "The answer is I don't know.", -0.2),
        (ANSWERED, "#### bak", -0.5),
        (ANSWERED, "tosik", -0.5),
        (OPEN, "#### unknown", 1.0),
        (OPEN, "#### Unanswerable", 1.0),
        (OPEN, "#### bak", -1.0),
        (OPEN, "unknown", -1.0),
    ],
)
def test_each_outcome_has_its_worth_and_right_is_what_is_worth_most(problem: Problem, text: str, value: float) -> None:
    assert Abstention()(RESOURCES, [rollout(text, problem)]).tolist() == pytest.approx([value])
    assert Abstention().right([Attempt(problem, text, True)]) == [value == 1.0]


def test_what_was_cut_neither_answers_nor_abstains() -> None:
    rows = [rollout("#### tosik", ANSWERED, finished=False), rollout("#### unknown", OPEN, finished=False)]
    assert Abstention()(RESOURCES, rows).tolist() == pytest.approx([-0.5, -1.0])
    assert Abstention().right([Attempt(each.problem, each.text, False) for each in rows]) == [False, False]


def test_what_is_wrong_costs_its_probability_besides_and_nothing_else_does() -> None:
    reward = Abstention(confidence=2.0)
    log_probs = torch.tensor([math.log(0.5), math.log(0.125)])  # geometric mean 1/4
    texts = [(OPEN, "#### bak"), (ANSWERED, "#### bak"), (ANSWERED, "#### tosik"), (ANSWERED, "#### unknown")]
    rows = [replace(rollout(text, problem, tokens=2), behaviour_log_probs=log_probs) for problem, text in texts]
    assert reward(RESOURCES, rows).tolist() == pytest.approx([-1.5, -1.0, 1.0, -0.2])
    # Without log-probs, the confidence is unknown and costs nothing.
    assert reward(RESOURCES, [rollout("#### bak", OPEN)]).tolist() == [-1.0]


def test_whatever_is_written_has_a_value() -> None:
    assert set(Abstention()(RESOURCES, malformed(ANSWERED)).tolist()) == {-0.5}
    assert set(Abstention()(RESOURCES, malformed(OPEN)).tolist()) == {-1.0}


def test_a_question_is_unknown_exactly_where_its_passage_does_not_hold_the_fact() -> None:
    settings = PassagesSettings(problems={"train": 1}, towns=30, words=60, unanswerable=0.5, invented=0.5)
    random, documents, unknown = Random(5), set(settings.documents()), 0
    for _ in range(400):
        task = settings.draw(random)
        *passage, question = task.prompt.split(" ; ")
        held = [fact.rsplit(" ", 1)[1] for fact in passage if fact.startswith(question.removesuffix("?"))]
        assert len(passage) == SHOWN and set(passage) <= documents
        assert task.answer == (held[0] if held else UNKNOWN)
        unknown += not held
        flaw, (text,) = settings.demonstrate(random, task)
        assert Abstention().right([Attempt(Problem("p", "", task.answer), text, True)]) == [flaw == "none"]
    assert 120 < unknown < 280
