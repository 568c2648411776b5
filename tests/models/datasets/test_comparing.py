"""Comparing tasks: rankings of solutions by a principle, and comparisons of two solutions with a reference."""

from random import Random

from models.answers.answers import extract_answer
from models.datasets.arithmetic import ArithmeticProblem, Operation, work
from models.method.judge import Answer
from models.reward_models.judges.verdict import ranking
from models.task_sets.comparing import ComparingSettings, ranked, referred
from models.task_sets.drawing import make_rows
from models.task_sets.judging import beside, results

PROBLEM = ArithmeticProblem(7, (Operation("add", 5), Operation("take_away", 3)))
SOUND = work(PROBLEM).text
SLIPPED, SKIPPED = "7 + 5 = 12 ; 12 - 3 = 8 ; #### 8", "7 - 3 = 4 ; #### 4"
SETTINGS = ComparingSettings(
    problems={"train": 60, "validation": 8, "gate": 8}, demonstrations={"train": 60, "validation": 8}, start=(1, 9),
    operand=(1, 9), levels=[1, 2, 3], value=(-20, 60), sound=0.4, ranked=3, mistaken=0.5,
    kinds={"correct": 1.0, "concise": 1.0, "solve": 1.0, "refer": 1.0},
)  # fmt: skip


def test_another_principle_ranks_the_same_solutions_another_way() -> None:
    assert ranked(PROBLEM, [SKIPPED, SOUND, SLIPPED], "correct") == (
        "2 3 1", ["7 + 5 = 12", "12 - 3 = 9", "1 4 12 wrong 0", "2 12 12 , 9 9 , 9 9 right", "3 12 12 , 8 9 wrong 1"],
    )  # fmt: skip
    assert ranked(PROBLEM, [SLIPPED, SOUND, SKIPPED], "concise") == ("3 1 2", ["1 has 2", "2 has 2", "3 has 1"])


def test_of_equals_the_one_that_stands_first_is_first() -> None:
    assert ranked(PROBLEM, [SOUND, SOUND], "correct")[0] == "1 2"
    assert ranked(PROBLEM, [SLIPPED, SOUND], "concise")[0] == "1 2"


def test_beside_a_reference_who_keeps_to_it_longer_is_better_whether_or_not_it_is_right() -> None:
    assert referred(SOUND, [SKIPPED, SLIPPED]) == ("second", ["first 4 12 wrong 0", "second 12 12 , 8 9 wrong 1"])
    assert referred(SKIPPED, [SKIPPED, SOUND]) == ("first", ["first 4 4 , 4 4 right", "second 12 4 wrong 0"])
    assert referred(SOUND, [SKIPPED, SKIPPED])[0] == "neither"


def test_who_ends_early_or_goes_on_differs_where_the_other_has_nothing() -> None:
    assert beside(["5", "5"], ["5"]) == (1, "5 5 , none 5 wrong 1")
    assert beside(["5"], ["5", "5"]) == (1, "5 5 , 5 none wrong 1")
    assert beside(["5"], ["5"])[1] == "5 5 right" and results("7 - 2 = 5 ; #### 5") == ["5", "5"]


def test_every_kind_comes_up_its_demonstration_states_the_answer_and_rankings_can_be_read() -> None:
    splits = make_rows(SETTINGS)["demonstrations"]
    rows = [*splits["train"], *splits["validation"]]
    kinds = {" ".join(str(row["prompt"]).split()[:2]) for row in rows}
    assert {"rank correct", "rank concise", "solve Start", "refer Start"} == kinds
    for row in rows:
        said = str(row["completion"])
        assert extract_answer(said) == row["answer"] and row["flaw"] == "none"
        if str(row["prompt"]).startswith("rank"):
            assert ranking(Answer(said, True), str(row["prompt"]).count(" answer ")) is not None
    assert make_rows(SETTINGS) == make_rows(SETTINGS)


def test_all_verdicts_of_a_comparison_come_up() -> None:
    random = Random(0)
    tasks = [SETTINGS.draw(random) for _ in range(300)]
    assert {task.answer for task in tasks if task.prompt.startswith("refer")} == {"first", "second", "neither"}
