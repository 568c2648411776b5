"""Tests of the forms in which answers are read; answer_forms.py holds the table of the forms."""

import subprocess
import sys

import pytest

from models.answers.answers import answer_key, before_answer, extract_answer, same_answer
from models.answers.exact import is_right
from models.answers.marked_answers import without_reasoning
from models.answers.sql import written_query
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.parts.rewards.rules.choice import Choice
from models.parts.rewards.rules.math_verify import MathVerify
from models.sandbox.written import written_program
from models.text.sentences import is_sentence
from tests.support.answer_forms import DOCS, FORMS, Form, shown, table


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.completion[:30])
def test_every_form_of_the_table_is_read_as_it_says(form: Form) -> None:
    assert extract_answer(form.completion) == form.read
    assert is_right(form.completion, form.expected, finished=True) == form.right
    attempt = Attempt(Problem("p", "", form.expected), form.completion, True)
    assert MathVerify().right([attempt]) == [form.right]


def test_the_docs_show_the_table_of_the_tests_and_one_command_writes_it() -> None:
    assert shown() == table()
    before = DOCS.read_bytes()
    subprocess.run([sys.executable, "-m", "tests.support.answer_forms"], cwd=DOCS.parents[1], check=True)
    assert DOCS.read_bytes() == before


@pytest.mark.parametrize("first", ["#### 4", "\\boxed{4}", "<answer>4</answer>", "The answer is 4.", "Answer: 4"])
@pytest.mark.parametrize("last", ["#### 5", "\\boxed{5}", "<answer>5</answer>", "The answer is 5.", "Answer: 5"])
def test_of_two_marked_answers_of_any_kinds_the_last_counts_alone(first: str, last: str) -> None:
    for between in ("\n", "\nWait.\n", "\n```\nx = 4\n```\n"):
        text = f"{first}{between}{last}"
        assert is_right(text, "5", finished=True) and not is_right(text, "4", finished=True), text


@pytest.mark.parametrize("hedge", ["4 or 5", "4, 5", "4/5 or 5", "either 4 or 5", "5 (or 4)", "4 and 5", "not 5"])
@pytest.mark.parametrize("mark", ["#### {}", "\\boxed{{{}}}", "<answer>{}</answer>", "The answer is {}.", "A: {}"])
def test_a_hedge_is_no_answer_however_it_is_marked(hedge: str, mark: str) -> None:
    text = f"2 + 3\n{mark.format(hedge)}"
    assert not any(is_right(text, answer, finished=True) for answer in ("4", "5"))


@pytest.mark.parametrize("tag", ["think", "thinking", "reasoning", "thought", "scratchpad", "THINK"])
def test_an_answer_in_reasoning_tags_of_any_name_does_not_count(tag: str) -> None:
    for inside in ("#### 7", "\\boxed{7}", "<answer>7</answer>", "The answer is 7."):
        assert extract_answer(f"<{tag}>{inside}</{tag}>") is None
        assert extract_answer(f"\\boxed{{5}}\n<{tag}>{inside}") == "5"
        assert extract_answer(f"{inside}</{tag}> Answer: 5") == "5"
        assert extract_answer(f"<{tag}>a <{tag}> b</{tag}> {inside}</{tag}> #### 5") == "5"


def test_programs_queries_and_labels_in_reasoning_tags_do_not_count() -> None:
    assert written_program(
        "?", "<think>\n```python\ndef f(): return 1\n```\n</think>\ndef f(): return 2", "f"
    ).strip() == ("def f(): return 2")
    assert written_query("<think><answer>select 1</answer></think>\n#### select 2;") == "select 2"
    assert written_query("#### select 1\n#### done") == "select 1"
    choice = Choice(labels=("sport", "markets"), reads="whole")
    assert choice.right([Attempt(Problem("p", "", "sport"), "<think>markets</think> Sport.", True)]) == [True]
    assert without_reasoning("<think>a</think>  x = 1\n") == "\n" * 16 + "  x = 1\n"


def test_what_stands_before_an_answer_includes_reasoning_whatever_the_mark() -> None:
    for mark in ("#### 5", "\\boxed{5}", "<answer>5</answer>", "answer: 5", "#### The answer is 5"):
        assert before_answer(f"<think>so</think> this {mark}") == "<think>so</think> this "
    assert before_answer("nothing") is None


def test_lists_are_the_same_item_by_item_and_thousands_are_no_lists() -> None:
    same = [("(1,2)", "( 1 , 2 )"), ("(0.5, 3)", "(1/2, 3)"), ("3,4,5", "3, 4, 5"), ("\\left(1,2\\right)", "(1, 2)")]
    same += [("{a,b}", "{a, b}"), ("(100,200)", "(100, 200)"), ("red, blue", "Red,blue"), ("1,200, 3", "1200, 3")]
    for given, expected in same:
        assert same_answer(given, expected) and answer_key(given) == answer_key(expected), given
    for given, expected in [
        ("(2,1)", "(1,2)"),
        ("1,200", "1, 200"),
        ("1,200, 3", "1, 200, 3"),
        ("(1,2)", "(1,2,3)"),
        ("1 a ; 2", "1 a ; 2 b"),
    ]:
        assert not same_answer(given, expected), given


@pytest.mark.parametrize("zero", "0٠۰०০๐０𝟎߀᠐")
def test_digits_of_any_script_are_read(zero: str) -> None:
    digits = "".join(chr(ord(zero) + digit) for digit in (1, 2, 5))
    assert same_answer(digits, "125") and answer_key(digits) == "125"


def test_a_sentence_is_told_from_names_numbers_and_lists() -> None:
    assert all(
        map(
            is_sentence,
            ["There are 5 apples left.", "It is so because of Dr. Smith. He won.", "他有五个苹果 and the rest。"],
        )
    )
    others = [
        "Dr. Smith",
        "J. R. R. Tolkien",
        "5.",
        "4.25",
        "the U.S. Navy of the Pacific",
        "St. Louis, Missouri",
        "Paris.",
    ]
    assert not any(map(is_sentence, [*others, "1 Start with 7 ; 2 Double it ; 3 end", "x = 1, y = 2, z = 3."]))


@pytest.mark.parametrize(
    "piece",
    ["<answer>", "</think>", "```\n", "\\boxed{1} ", "answer is Dr. ", "\u0301\u0316", "#### a ", "# final ", "A:\n\n"],
)
def test_half_a_megabyte_of_any_mark_is_read_like_a_short_text(piece: str) -> None:
    text = piece * (500_000 // len(piece))  # with quadratic time, this takes hours
    assert not same_answer(text, "18")
    assert extract_answer(f"{text}\n#### 18") == "18"
