"""Arithmetic problems: their prompts, their worked solutions and the three kinds of flaws."""

import re
from random import Random
from typing import Any

import pytest

from models.datasets.arithmetic import (
    FLAWS,
    ArithmeticProblem,
    Operation,
    flawed,
    operand_skipped,
    sign_lost,
    slip,
    work,
)
from models.datasets.make_arithmetic import ArithmeticSettings, draw_problem

ADD_5, TAKE_3, TAKE_9, DOUBLE = (
    Operation("add", 5),
    Operation("take_away", 3),
    Operation("take_away", 9),
    Operation("double", 2),
)
SEVEN = ArithmeticProblem(7, (ADD_5, TAKE_3, DOUBLE))
BELOW = ArithmeticProblem(2, (TAKE_3, ADD_5, TAKE_9))  # -1, 4, -5
LINE = re.compile(r"(-?\d+) ([-+*]) (\d+) = (-?\d+)")


def drawn(count: int = 400) -> list[ArithmeticProblem]:
    ranges: dict[str, Any] = {"start": (1, 20), "operand": (1, 9), "value": (-20, 60)}
    settings = ArithmeticSettings.model_construct(**ranges)
    random = Random(0)
    problems = [draw_problem(random, 1 + index % 5, settings) for index in range(count)]
    return [problem for problem in problems if work(problem).within(-20, 60)]


def value_of(prompt: str) -> int:
    """Compute the answer from the text of the prompt alone."""
    value = 0
    for sentence in prompt.removesuffix(" .").split(" . "):
        words = sentence.split()
        if words[0] == "Start":
            value = int(words[2])
        elif words[0] == "Add":
            value += int(words[1])
        elif words[:2] == ["Take", "away"]:
            value -= int(words[2])
        else:
            assert words == ["Double", "it"]
            value *= 2
    return value


def test_the_prompt_and_the_working_read_as_documented() -> None:
    assert SEVEN.prompt == "Start with 7 . Add 5 . Take away 3 . Double it ."
    assert work(SEVEN).text == "7 + 5 = 12 ; 12 - 3 = 9 ; 9 * 2 = 18 ; #### 18"
    assert SEVEN.level == 3


def test_a_negative_number_is_one_token_and_tokens_stand_between_single_spaces() -> None:
    assert work(BELOW).text == "2 - 3 = -1 ; -1 + 5 = 4 ; 4 - 9 = -5 ; #### -5"
    for problem in drawn():
        for text in (problem.prompt, work(problem).text):
            assert " ".join(text.split()) == text


def test_a_sound_working_ends_in_what_the_prompt_evaluates_to() -> None:
    for problem in drawn():
        assert work(problem).answer == value_of(problem.prompt)


def test_skipping_leaves_out_one_operation_and_goes_on_from_there() -> None:
    assert [working.text for working in operand_skipped(SEVEN)] == [
        "7 - 3 = 4 ; 4 * 2 = 8 ; #### 8",
        "7 + 5 = 12 ; 12 * 2 = 24 ; #### 24",
        "7 + 5 = 12 ; 12 - 3 = 9 ; #### 9",
    ]


def test_an_operation_that_changes_nothing_is_no_skipped_operand() -> None:
    doubled_zero = ArithmeticProblem(3, (TAKE_3, DOUBLE))
    assert [working.text for working in operand_skipped(doubled_zero)] == ["3 * 2 = 6 ; #### 6"]


def test_a_lost_sign_is_lost_in_every_negative_result_and_the_working_goes_on_from_it() -> None:
    assert [working.text for working in sign_lost(BELOW)] == ["2 - 3 = 1 ; 1 + 5 = 6 ; 6 - 9 = 3 ; #### 3"]
    assert list(sign_lost(SEVEN)) == []


def test_a_slip_is_one_result_off_by_one_to_three() -> None:
    texts = [working.text for working in slip(ArithmeticProblem(7, (ADD_5,)))]
    assert texts == [f"7 + 5 = {result} ; #### {result}" for result in (9, 10, 11, 13, 14, 15)]
    assert len(list(slip(SEVEN))) == 3 * 6


@pytest.mark.parametrize("flaw", FLAWS)
def test_every_flawed_working_has_another_answer_than_the_sound_one(flaw: str) -> None:
    seen = [(working.answer, work(problem).answer) for problem in drawn() for working in flawed(problem, flaw, -20, 60)]
    assert len(seen) > 30
    assert all(wrong != right for wrong, right in seen)


def test_each_flaw_breaks_just_the_lines_that_its_name_says() -> None:
    for problem in drawn(200):
        for flaw in FLAWS:
            for working in flawed(problem, flaw, -20, 60):
                broken, left = [], problem.start
                for line in working.text.split(" ; ")[:-1]:
                    match = LINE.fullmatch(line)
                    assert match is not None
                    first, symbol, operand, result = match.groups()
                    assert int(first) == left, "a line goes on from what is written before it"
                    true = {"+": left + int(operand), "-": left - int(operand), "*": left * int(operand)}[symbol]
                    left = int(result)
                    if left != true:
                        broken.append((left, true))
                if flaw == "operand_skipped":
                    assert not broken and len(working.lines) == problem.level - 1
                elif flaw == "sign_lost":
                    assert broken and all(left == -true > 0 for left, true in broken)
                else:
                    assert len(broken) == 1 and 1 <= abs(broken[0][0] - broken[0][1]) <= 3


def test_no_flawed_working_occurs_twice_or_belongs_to_two_kinds() -> None:
    for problem in drawn():
        actual = [working.text for flaw in FLAWS for working in flawed(problem, flaw, -20, 60)]
        assert len(actual) == len(set(actual))


def test_flawed_workings_outside_of_the_range_are_left_out() -> None:
    assert flawed(ArithmeticProblem(7, (ADD_5,)), "slip", 0, 11) != ()
    assert all(working.answer <= 11 for working in flawed(ArithmeticProblem(7, (ADD_5,)), "slip", 0, 11))
