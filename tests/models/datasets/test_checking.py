"""Checking tasks, short questions about solutions: their answers, their demonstrations and the choice of the step."""

from random import Random

import pytest

from models.answers.answers import extract_answer
from models.datasets.arithmetic import ArithmeticProblem, Operation, work
from models.method.judge import Answer
from models.reward_models.judges.verdict import listed
from models.task_sets.checking import (
    CheckingSettings,
    Kind,
    asked_about,
    expected,
    items,
    onwards,
    program,
    ticked,
)
from models.task_sets.drawing import make_rows

PROBLEM = ArithmeticProblem(7, (Operation("add", 5), Operation("take_away", 3), Operation("double", 2)))
SOUND = work(PROBLEM).text.split(" ; ")
SLIPPED = "7 + 5 = 12 ; 12 - 3 = 8 ; 8 * 2 = 16 ; #### 16".split(" ; ")
KINDS: tuple[Kind, ...] = ("list", "tick", "step", "plain", "program", "output", "reverse")
SETTINGS = CheckingSettings(
    problems={"train": 60, "validation": 8, "gate": 8}, demonstrations={"train": 60, "validation": 8}, start=(1, 9),
    operand=(1, 9), levels=[1, 2, 3], value=(-20, 60), sound=0.4, kinds=dict.fromkeys(KINDS, 1.0),
)  # fmt: skip


def test_a_problem_asks_for_its_operations_and_its_end() -> None:
    assert items(PROBLEM) == ["1 Start with 7 Add 5", "2 Take away 3", "3 Double it", "4 end"]


def test_an_error_counts_once_and_what_follows_from_it_is_right() -> None:
    assert [ticked(PROBLEM, SOUND, number)[0] for number in range(4)] == ["yes"] * 4
    assert [ticked(PROBLEM, SLIPPED, number) for number in range(4)] == [
        ("yes", ["7 + 5 = 12", "12 12"]), ("no", ["12 - 3 = 9", "8 9"]), ("yes", ["8 * 2 = 16", "16 16"]),
        ("yes", ["16", "16 16"]),
    ]  # fmt: skip


def test_what_is_left_out_is_not_there_and_an_end_that_comes_early_is_none() -> None:
    early = "7 + 5 = 12 ; #### 12".split(" ; ")
    assert [ticked(PROBLEM, early, number)[0] for number in range(4)] == ["yes", "no", "no", "no"]
    assert ticked(PROBLEM, early, 2) == ("no", ["none"])
    skipped = "7 - 3 = 4 ; 4 * 2 = 8 ; #### 8".split(" ; ")
    assert [ticked(PROBLEM, skipped, number)[0] for number in range(4)] == ["no"] * 4


def test_going_on_from_a_step_leads_where_its_result_leads() -> None:
    assert onwards(PROBLEM, SOUND, 0) == (["12 - 3 = 9", "9 * 2 = 18"], "18")
    assert onwards(PROBLEM, SLIPPED, 1) == (["8 * 2 = 16"], "16")
    assert onwards(PROBLEM, SLIPPED, 3) == (["16"], "16")
    early = "7 + 5 = 12 ; #### 12".split(" ; ")
    assert onwards(PROBLEM, early, 1) == (["12"], "12")  # a solution that has ended has no further steps


@pytest.mark.parametrize("solution", [SOUND, SLIPPED])
def test_the_program_of_a_step_prints_what_it_should_come_to(solution: list[str]) -> None:
    for number in range(len(solution)):
        due = expected(PROBLEM, solution, number)
        code = program(due)
        assert code.startswith("print ( ") and eval(code.removeprefix("print")) == int(due.rpartition(" ")[2])


def test_every_kind_comes_up_and_its_demonstration_states_the_answer() -> None:
    splits = make_rows(SETTINGS)["demonstrations"]
    rows = [*splits["train"], *splits["validation"]]
    assert {str(row["prompt"]).split()[0] for row in rows} == set(KINDS)
    assert all(extract_answer(str(row["completion"])) == row["answer"] and row["flaw"] == "none" for row in rows)
    lists = [row for row in rows if str(row["prompt"]).startswith("list ")]
    for row in lists:
        asked = listed(Answer(str(row["completion"]), True), 9)
        assert asked is not None and len(asked) == int(str(row["level"])) + 1
    assert make_rows(SETTINGS) == make_rows(SETTINGS)


def test_steps_that_are_wrong_and_answers_that_are_not_reached_come_up_too() -> None:
    random = Random(0)
    said = {(task.prompt.split()[0], task.answer) for task in (SETTINGS.draw(random) for _ in range(400))}
    for kind in ("tick", "step", "plain", "output", "reverse"):
        assert {(kind, "yes"), (kind, "no")} <= said


def test_half_of_the_questions_about_a_flawed_solution_are_about_a_wrong_step() -> None:
    random = Random(1)
    asked = [asked_about(random, [True, False, True, True]) for _ in range(2000)]
    # one half is the wrong step for certain, the other half is any of the four steps: 1/2 + 1/8
    assert abs(asked.count(1) / 2000 - 0.625) < 0.04 and set(asked) == {0, 1, 2, 3}
    assert {asked_about(random, [True, True]) for _ in range(50)} == {0, 1}
    assert {asked_about(random, [False]) for _ in range(5)} == {0}
