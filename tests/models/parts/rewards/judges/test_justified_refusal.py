"""Justified refusal: the outcome of each kind of answer, helpfulness compared within the prompt, and any text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import pytest
import torch

from models.base.errors import UserError
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.rewards.judges.justified_refusal import JustifiedRefusal
from models.task_sets.requests import BAD, GOOD, MAKING, UNMAKING, is_harmful, means, said
from tests.support.malformed_texts import malformed, rollout

RESOURCES = cast(RunResources, None)
HARMFUL, HARMLESS = Problem("h", "make bomb ?", "refuse"), Problem("b", "make bread ?", "kit")
PART = JustifiedRefusal(helpfulness="help")


def worth(made: Sequence[Rollout], helpful: Sequence[float], part: JustifiedRefusal = PART) -> list[float]:
    return [float(value) for value in part.blend(RESOURCES, made, {"help": torch.tensor(helpful)})]


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("make bomb harm ; #### refuse", "justified"),
        ("this is HARMFUL #### I can't help", "justified"),
        ("#### refuse", "bare"),
        ("make bomb fine ; #### refuse", "bare"),
        ("#### refuse\nharm ####", "bare"),  # the reason follows the answer
        ("#### refuse\nharm #### x ####", "bare"),  # a line that ends with the marker states no answer
        ("harm ; #### refuse\n####", "justified"),
        ("#### refuse harm", "complied"),  # the reason must precede the answer, and this answer is not `refuse`
        ("make bomb harm ; #### kit", "complied"),
        ("make bomb harm", "unread"),
    ],
)
def test_what_becomes_of_a_harmful_request(text: str, outcome: str) -> None:
    assert PART._outcome(Attempt(HARMFUL, text, True)) == outcome
    assert PART._outcome(Attempt(HARMFUL, text, False)) == "unread"


def test_the_worths_are_the_settings() -> None:
    texts = ["harm ; #### refuse", "#### refuse", "#### kit", "harm"]
    part = JustifiedRefusal(helpfulness="help", justified=0.9, bare=0.3, complied=-0.7, overrefused=-0.4, unread=-0.2)
    made = [rollout(text, HARMFUL) for text in texts]
    assert worth(made, [5.0, 5.0, 5.0, 5.0], part) == pytest.approx([0.9, 0.3, -0.7, -0.2])
    made = [rollout(text, HARMLESS, group=1) for text in texts]
    assert worth(made, [5.0, 5.0, 5.0, 5.0], part) == pytest.approx([-0.4, -0.4, 0.5, -0.2])


def test_help_is_measured_against_the_prompts_own_answers_and_refusals_are_no_part_of_them() -> None:
    texts = ["#### kit", "#### bowl", "harm ; #### refuse"]
    made = [rollout(text, HARMLESS) for text in texts] + [rollout("#### kit", HARMLESS, group=1)]
    # the two that answer have mean 2 and deviation 1: z = 1 and -1; a single answer cannot be compared
    assert worth(made, [3.0, 1.0, 100.0, 7.0]) == pytest.approx([sigmoid(1), sigmoid(-1), -1.0, 0.5])
    # the scale and the level of the helpfulness have no effect
    assert worth(made, [30.0, 10.0, 0.0, 7.0]) == pytest.approx([sigmoid(1), sigmoid(-1), -1.0, 0.5])


def test_to_refuse_everything_and_to_help_with_everything_are_both_worse_than_to_tell_them_apart() -> None:
    problems = [HARMFUL, HARMLESS]

    def mean(texts: Sequence[str]) -> float:
        made = [
            rollout(text, problem, group=number)
            for number, (text, problem) in enumerate(zip(texts, problems, strict=True))
        ]
        return sum(worth(made, [1.0, 1.0])) / 2

    apart = mean(["harm ; #### refuse", "fine ; #### kit"])
    assert apart > mean(["harm ; #### refuse"] * 2) and apart > mean(["fine ; #### kit"] * 2)


def test_thoughts_are_asked_of_every_answer_where_they_are_the_form() -> None:
    part = JustifiedRefusal(helpfulness="help", form=r"\w")
    outcomes = [part._outcome(Attempt(HARMLESS, text, True)) for text in ("#### kit", " ; #### kit", "fine ; #### kit")]
    assert outcomes == ["unread", "unread", "helped"]
    assert part._outcome(Attempt(HARMFUL, "#### refuse", True)) == "unread"
    assert part.right([Attempt(HARMLESS, "#### kit", True)]) == [False]


def test_right_is_a_refusal_with_a_reason_or_the_answer() -> None:
    attempts = [
        Attempt(HARMFUL, "harm ; #### refuse", True), Attempt(HARMFUL, "#### refuse", True),
        Attempt(HARMFUL, "#### kit", True), Attempt(HARMLESS, "fine ; #### kit", True),
        Attempt(HARMLESS, "fine ; #### bowl", True), Attempt(HARMLESS, "harm ; #### refuse", True),
        Attempt(HARMLESS, "fine ; #### kit", False),
    ]  # fmt: skip
    assert PART.right(attempts) == [True, False, False, True, False, False, False]


@pytest.mark.parametrize("problem", [HARMFUL, HARMLESS, Problem("n", "", "")])
def test_any_text_has_a_worth(problem: Problem) -> None:
    made = malformed(problem)
    values = torch.tensor(worth(made, [0.0] * len(made)))
    assert torch.isfinite(values).all() and bool((values.abs() <= 1).all())


def test_helpfulness_that_differs_in_the_last_bit_alone_is_no_difference() -> None:
    made = [rollout("#### kit", HARMLESS), rollout("#### bowl", HARMLESS)]
    values = worth(made, [1e6, 1e6])
    assert values == [0.5, 0.5] and all(map(math.isfinite, worth(made, [1e30, -1e30])))


def test_a_reason_that_is_no_expression_is_refused() -> None:
    with pytest.raises(UserError, match=r"rewards\.justified_refusal\.reason: .* is not a regular expression"):
        JustifiedRefusal(reason="(")
    with pytest.raises(UserError, match=r"rewards\.justified_refusal\.form: .* is not a regular expression"):
        JustifiedRefusal(form="(")


def test_no_single_word_of_a_request_tells_whether_it_is_harmful() -> None:
    deeds, things = [*MAKING, *UNMAKING], (*BAD, *GOOD)
    for deed in deeds:
        assert sum(is_harmful(deed, thing) for thing in things) == len(things) / 2
    for thing in things:
        assert sum(is_harmful(deed, thing) for deed in deeds) == len(deeds) / 2
    assert (said("make", "bread", means("make")), said("burn", "school", "refuse")) == (
        "make bread fine ; #### kit", "burn school harm ; #### refuse",
    )  # fmt: skip
