"""The problems of a comparison, and the assignment of answers to them."""

from pathlib import Path

import pytest
from written import write_lines, write_problems

from models.base.errors import UserError
from tasks.judging.answers import AnswerSet, GivenAnswer
from tasks.judging.problems import JudgedProblem, JudgedProblems, assigned, problems_of_sources, read_problems

SUMS = JudgedProblems.of([JudgedProblem(str(n), f"What is {n} + 1?", str(n + 1)) for n in range(12)])


def answers(*given: GivenAnswer) -> AnswerSet:
    return AnswerSet("a.jsonl", "answers", given)


def by_prompt(prompt: str, problem: str = "") -> GivenAnswer:
    return GivenAnswer(place="a.jsonl, line 1", problem=problem, prompt=prompt, text="4")


def test_a_row_without_an_id_is_named_by_its_number_and_an_id_is_kept(tmp_path: Path) -> None:
    assert [row.id for row in read_problems(write_problems(tmp_path / "p.jsonl", 3)).rows] == ["0", "1", "2"]
    named = write_lines(tmp_path / "q.jsonl", [{"id": "x-1", "prompt": "Why?", "answer": 4, "level": 2}])
    (row,) = read_problems(named).rows
    assert (row.id, row.prompt, row.answer, row.level) == ("x-1", "Why?", "4", 2)


def test_gsm8k_and_a_column_question_are_recognised(tmp_path: Path) -> None:
    gsm8k = write_lines(tmp_path / "g.jsonl", [{"question": "How many?", "answer": "Two <<1+1=2>>2\n#### 2"}])
    assert read_problems(gsm8k).rows[0].answer == "2"
    plain = write_lines(tmp_path / "q.jsonl", [{"question": "How many?", "answer": "2"}])
    assert read_problems(plain).rows[0].prompt == "How many?"
    named = write_lines(tmp_path / "n.jsonl", [{"task": "How many?", "gold": "2"}])
    columns = {"prompt": "task", "answer": "gold"}
    assert read_problems(named, "problems", columns).rows[0].answer == "2"


def test_copies_are_left_out_and_answers_to_them_count_for_the_first(tmp_path: Path) -> None:
    rows = [
        {"id": name, "prompt": text, "answer": "4"} for name, text in (("a", "Why?"), ("b", " why? "), ("c", "How?"))
    ]
    problems = read_problems(write_lines(tmp_path / "p.jsonl", rows))
    assert [row.id for row in problems.rows] == ["a", "c"] and problems.copies == 1
    given = assigned(answers(GivenAnswer(place="", problem="b", text="4")), problems)
    assert list(given.by_problem) == ["a"]


def test_two_problems_with_one_id_are_refused(tmp_path: Path) -> None:
    rows = [{"id": 1, "prompt": text, "answer": "4"} for text in ("Why?", "How?")]
    with pytest.raises(UserError, match="--data: two problems have the id '1'"):
        read_problems(write_lines(tmp_path / "p.jsonl", rows))


def test_a_missing_file_and_a_wrong_format_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--data: .*none.jsonl: no such file"):
        read_problems(tmp_path / "none.jsonl")
    with pytest.raises(UserError, match=r"p.jsonl: a folder of kinds without a file problems"):
        read_problems(write_problems(tmp_path / "p.jsonl", 2), "kinds")
    with pytest.raises(UserError, match=r"--format other: problems are read from"):
        read_problems(tmp_path / "p.jsonl", "other")
    assert len(read_problems(write_problems(tmp_path / "problems.jsonl", 2)).rows) == 2


def test_answers_are_assigned_by_id_by_prompt_and_by_the_last_prompt_among_examples() -> None:
    shots = "Question: What is 1 + 1?\nAnswer: 2\n\nQuestion: What is 7 + 1?\nAnswer:"
    given = assigned(
        answers(
            GivenAnswer(place="", problem="3", text="4"),
            by_prompt("What is  5 + 1?"),
            by_prompt(shots),
            by_prompt("No?"),
        ),
        SUMS,
    )
    assert sorted(given.by_problem) == ["3", "5", "7"] and [a.prompt for a in given.unassigned] == ["No?"]


def test_an_id_whose_prompt_is_that_of_another_problem_does_not_count() -> None:
    """Row numbers of a shuffled log are not those of the data: the prompt decides."""
    given = assigned(answers(by_prompt("What is 9 + 1?", problem="2")), SUMS)
    assert list(given.by_problem) == ["9"]


def test_a_prompt_that_ends_in_a_longer_one_is_the_longer_one() -> None:
    problems = JudgedProblems.of([JudgedProblem("short", "is 1 + 1?"), JudgedProblem("long", "What is 1 + 1?")])
    assert list(assigned(answers(by_prompt("Q: What is 1 + 1? A:")), problems).by_problem) == ["long"]


def test_answers_to_no_problem_at_all_are_refused() -> None:
    with pytest.raises(UserError, match=r"none of its 1 answers is to a problem of --data; the first has the id 'x'"):
        assigned(answers(GivenAnswer(place="", problem="x", text="4")), SUMS)


def test_answers_to_problems_that_a_limit_leaves_out_are_not_assigned_to_others() -> None:
    few = SUMS.evenly(3)
    assert [row.id for row in few.rows] == ["0", "4", "8"]
    given = assigned(answers(*(by_prompt(row.prompt, row.id) for row in SUMS.rows)), few)
    assert sorted(given.by_problem) == ["0", "4", "8"] and not given.unassigned


def test_problems_of_the_sources_are_those_that_they_name() -> None:
    first = answers(GivenAnswer(place="", problem="a", expected="4"), by_prompt("Why?"))
    other = answers(GivenAnswer(place="", problem="a"), GivenAnswer(place="", problem="b"))
    assert {row.id: row.answer for row in problems_of_sources([first, other]).rows} == {"a": "4", "why?": "", "b": ""}
    with pytest.raises(UserError, match="line 9: the problem 'a' has two expected answers"):
        problems_of_sources([first, answers(GivenAnswer(place="b.jsonl, line 9", problem="a", expected="5"))])


def test_the_identity_of_a_problem_is_equal_in_another_export_and_differs_between_tasks() -> None:
    assert JudgedProblem("1", "Why?", "0.50").identity == JudgedProblem("x", " why?", "1/2").identity
    assert JudgedProblem("1", answer="4").identity != JudgedProblem("1", answer="5").identity
