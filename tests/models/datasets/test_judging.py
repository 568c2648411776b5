"""Data for judges: critiques, scores, comparisons and demonstrations of arithmetic solutions."""

from random import Random

import pytest

from models.answers.answers import extract_answer
from models.datasets.arithmetic import ArithmeticProblem, Operation, work
from models.method.judge import Answer
from models.reward_models.judges.verdict import judged_steps
from models.task_sets.drawing import make_rows
from models.task_sets.judging import JudgingSettings, better, comparison, critique, score_of

PROBLEM = ArithmeticProblem(7, (Operation("add", 5), Operation("take_away", 3)))
SETTINGS = JudgingSettings(
    problems={"train": 60, "validation": 8, "gate": 8}, demonstrations={"train": 120, "validation": 8}, start=(1, 9),
    operand=(1, 9), levels=[1, 2, 3], value=(-20, 60), compared=0.5, sound=0.4, careless=0.3,
)  # fmt: skip


@pytest.mark.parametrize(
    ("solution", "said"),
    [
        ("7 + 5 = 12 ; 12 - 3 = 9 ; #### 9", "7 + 5 = 12 , 12 12 right ; 12 - 3 = 9 , 9 9 right ; 9 9 right ; #### 9"),
        ("7 + 5 = 12 ; 12 - 3 = 8 ; #### 8", "7 + 5 = 12 , 12 12 right ; 12 - 3 = 9 , 8 9 wrong ; #### 1"),
        ("7 - 3 = 4 ; #### 4", "7 + 5 = 12 , 4 12 wrong ; #### 0"),
        ("7 + 5 = 12 ; #### 12", "7 + 5 = 12 , 12 12 right ; 12 - 3 = 9 , 12 9 wrong ; #### 1"),
        (
            "7 + 5 = 12 ; 12 - 3 = 9",
            "7 + 5 = 12 , 12 12 right ; 12 - 3 = 9 , 9 9 right ; none 9 wrong ; #### 2",
        ),
        (
            "7 + 5 = 12 ; 12 - 3 = 9 ; #### 8",
            "7 + 5 = 12 , 12 12 right ; 12 - 3 = 9 , 9 9 right ; 8 9 wrong ; #### 2",
        ),
        ("", "7 + 5 = 12 ,  12 wrong ; #### 0"),
    ],
)
def test_the_critique_goes_up_to_the_first_result_that_differs(solution: str, said: str) -> None:
    assert critique(PROBLEM, solution) == said
    judged = judged_steps(Answer(said, finished=True))
    assert judged.count(True) == min(score_of(PROBLEM, solution), 3) and judged.count(False) <= 1


def test_the_better_of_two_has_the_higher_score() -> None:
    sound, slipped, skipped = work(PROBLEM).text, "7 + 5 = 12 ; 12 - 3 = 8 ; #### 8", "7 - 3 = 4 ; #### 4"
    assert [score_of(PROBLEM, text) for text in (sound, slipped, skipped)] == [9, 1, 0]
    pairs = [(sound, slipped), (skipped, slipped), (skipped, skipped)]
    assert [better(PROBLEM, *pair) for pair in pairs] == ["first", "second", "neither"]
    assert comparison(PROBLEM, skipped, sound) == (
        "7 + 5 = 12 ; 12 - 3 = 9 ; first 4 12 wrong 0 ; second 12 12 , 9 9 , 9 9 right ; #### second"
    )


def test_a_sound_demonstration_states_the_verdict_and_a_careless_one_another() -> None:
    for splits in (make_rows(SETTINGS)["demonstrations"],):
        rows = [*splits["train"], *splits["validation"]]
        for row in rows:
            assert (extract_answer(str(row["completion"])) == row["answer"]) == (row["flaw"] == "none")
        assert {row["flaw"] for row in rows} == {"none", "careless"}


def test_the_same_settings_give_the_same_rows_and_all_verdicts_come_up() -> None:
    assert make_rows(SETTINGS) == make_rows(SETTINGS)
    random = Random(0)
    answers = {SETTINGS.draw(random).answer for _ in range(400)}
    assert answers == {"first", "second", "neither", "0", "1", "2", "3", "9"}
