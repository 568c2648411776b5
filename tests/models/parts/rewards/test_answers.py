"""Tests of reading and comparing answers, with real solutions and with hostile text."""

import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from models.answers.answers import answer_key, extract_answer, same_answer


def rows(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def test_every_reference_answer_of_gsm8k_is_parsed_and_accepted(shared_data: Path) -> None:
    solutions = [row["answer"] for name in ("train", "test") for row in rows(shared_data / f"gsm8k_{name}.jsonl")]
    assert len(solutions) == 8792
    for solution in solutions:
        answer = extract_answer(solution)
        assert answer is not None and same_answer(answer, answer), solution
        value = Fraction(answer_key(answer))  # the key is a number, equal to the answer as the data set writes it
        assert value == Fraction(solution.split("#### ")[1].replace(",", "")), solution
        assert not same_answer(str(value + 1), answer) and not same_answer(str(-value - 1), answer)


def test_solutions_of_models_are_judged_as_their_labels_say(shared_data: Path) -> None:
    judged = agreed = 0
    for row in rows(shared_data / "gsm8k_model_solutions.jsonl"):
        expected = extract_answer(row["ground_truth"])
        for made in row.values():
            if isinstance(made, dict):
                judged += 1
                assert expected is not None
                agreed += same_answer(extract_answer(made["solution"]), expected) == made["is_correct"]
    assert judged == 4 * 1319
    assert agreed == judged


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("7 + 5 = 12 ; #### 12", "12"),
        ("#### 3\nno, wait\n#### 4\n", "4"),
        ("#### 3 #### 4", "4"),
        ("#### 1,234.50 dollars", "1,234.50 dollars"),
        ("so \\boxed{\\frac{1}{2}} it is", "\\frac{1}{2}"),
        ("\\boxed{1}, no: \\boxed{2}", "2"),
        ("The answer is 42. Thank you.", "42"),
        ("The answer is 4.2.", "4.2"),
        ("**Answer:** 42", "42"),
        ("She makes 26\nA: 26", "26"),
        ("the answer is\n\n 42", "42"),
        ("The answer is 3, but #### 4", "4"),
        ("it is 42", None),
        ("####", None),
        ("\\boxed{42", None),
        ("", None),
    ],
)
def test_an_answer_is_read_where_it_is_marked(text: str, answer: str | None) -> None:
    assert extract_answer(text) == answer


def test_the_last_number_counts_only_when_asked_for() -> None:
    assert extract_answer("from 3 to -1,204.5, then") is None
    assert extract_answer("from 3 to -1,204.5, then", last_number=True) == "-1,204.5"
    assert extract_answer("12-5", last_number=True) == "5"
    assert extract_answer("none", last_number=True) is None


SAME = [
    ("1,200", "1200"),
    ("$1200.00", "1200"),
    ("1 200", "1200"),
    ("1/2", "0.5"),
    ("\\frac{1}{2}", "0.5"),
    ("-\\dfrac{1}{2}", "-0.5"),
    ("1 1/2", "1.5"),
    ("1½", "1.5"),
    (".5", "0.50"),
    ("50%", "50"),
    ("18.", "18"),
    ("+18", "18"),
    (" 18 ", "18"),
    ("\u221218", "-18"),
    ("-$18", "-18"),
    ("$-18", "-18"),
    ("- 18", "-18"),
    ("x = 18", "18"),
    ("$18$", "18"),
    ("**18**", "18"),
    ("18 dollars", "18"),
    ("18 km/h", "18"),
    ("18 sq ft", "18"),
    ("8 fl oz", "8"),
    ("5th", "5"),
    ("18\\text{ cm}", "18 cm"),
    ("18\\text{cm}", "18 cm"),
    ("18km", "18"),
    ("18 miles per hour", "18"),
    ("50/100", "1/2"),
    ("84/2", "42/1"),
    ("1.5e3", "1500"),
    ("0", "-0"),
    ("Paris.", "paris"),
    ("\\text{Paris}", "Paris"),
    ("１８", "18"),
]
OTHER = [
    ("19", "18"),
    ("-18", "18"),
    ("18.0001", "18"),
    ("0.333", "1/3"),
    ("5 or 6", "5"),
    ("5 or 6", "6"),
    ("5, 6", "5"),
    ("18 18", "18"),
    ("1,8", "18"),
    ("5 million", "5"),
    ("5k", "5"),
    ("5²", "52"),
    ("5²", "5"),
    ("18 cm", "18 km"),
    ("1/0", "0"),
    ("", ""),
    (" ", "18"),
    ("18", ""),
    ("--18", "-18"),
    ("nan", "18"),
    ("inf", "18"),
    ("Paris", "London"),
    ("not 5", "5"),
    ("6ab", "6"),
    ("6y", "6"),
    ("6 y", "6"),
    ("6\\theta", "6"),
    ("5x²", "5"),
    ("x = 5", "y = 5"),
    ("\\frac{x+1}{2}", "x + 1/2"),
]
UNDONE = ["84/2", "42/1", "\\frac{84}{2}", "40 4/2", "8.4/.2", "84 / 2"]
SAID_MORE = """
42 tenths;42 hundredths;42 sevenths;42 thirds;42 halves;42 ten-thousandths;42 millionths;42 gross;42 tens
42 divided by two;42 over seven;42 by two;42 mod five;42 times;42 minus one;42 plus;42 cubed;42 factorial;42 root
42 not;42 maybe;42 or so;42 without;42 to fifty;42 percent of six;42 billion
"""


@pytest.mark.parametrize(("given", "expected"), SAME)
def test_the_same_value_written_otherwise_is_accepted(given: str, expected: str) -> None:
    assert same_answer(given, expected) and same_answer(expected, given)


@pytest.mark.parametrize(("given", "expected"), OTHER)
def test_another_value_is_refused(given: str, expected: str) -> None:
    assert not same_answer(given, expected) and not same_answer(expected, given)


@pytest.mark.parametrize("given", UNDONE)
def test_a_division_that_is_whole_is_not_carried_out(given: str) -> None:
    assert not same_answer(given, "42") and not same_answer(given, "42.0")
    assert answer_key(given) != answer_key("42")
    assert same_answer(given, given)


@pytest.mark.parametrize("given", [text for line in SAID_MORE.split("\n") for text in line.split(";") if text])
def test_words_that_make_a_number_another_one_are_no_unit(given: str) -> None:
    assert not same_answer(given, "42") and not same_answer(f"{given}.", "42")


UNITS = "apples;dollars;cents;km/h;miles per hour;km²;°;oz;ft;hours a day;percent;pairs of shoes;men;eggs;seconds;g;L"


@pytest.mark.parametrize("unit", UNITS.split(";"))
def test_a_unit_leaves_a_number_what_it_is(unit: str) -> None:
    assert same_answer(f"42 {unit}", "42")


def test_no_answer_is_never_right() -> None:
    assert not same_answer(None, "") and not same_answer(None, "None")


def test_any_fraction_in_any_dress_equals_itself_and_no_other() -> None:
    chance = random.Random(7)
    for _ in range(2000):
        cents = chance.randint(-(10**9), 10**9)
        value, other = Fraction(cents, 100), Fraction(cents + chance.choice([-100, -1, 1, 10, 100]), 100)
        sign, size = ("-" if cents < 0 else ""), abs(value)
        dresses = [
            f"{sign}{float(size):,.2f}",
            f"{sign}${float(size):.2f}",
            f"{sign}{float(size):.4f}.",
            f" {sign}{3 * size.numerator}/{3 * size.denominator} " if size.denominator > 1 else f"{value}.",
            f"{sign.replace('-', '−') or '+'}{float(size):.2f} %",
        ]
        a, b = chance.choice(dresses), chance.choice(dresses)
        assert same_answer(a, b) and answer_key(a) == answer_key(b)
        assert not same_answer(a, str(other)) and answer_key(a) != answer_key(str(other))
        assert extract_answer(f"worked {other} out\n#### {a}\n") == a.strip()


@pytest.mark.rotating(of=6)
def test_no_text_whatever_raises() -> None:
    chance = random.Random(11)
    pieces = ["####", "\\boxed{", "}", "{", "answer is", "A:", "\n", " ", "-", "−", "1", "0", "/", ".", ",", "$", "%"]
    pieces += ["e9", "\\frac{"]
    pieces += ["½", "\ud800", "\x00", "İ", "٣", "²", "x", "=", "9" * 5000, "\u0301", "\u202e"]
    for _ in range(3000):
        text = "".join(chance.choices(pieces, k=chance.randint(0, 12)))
        answer = extract_answer(text, last_number=chance.random() < 0.5)
        assert answer is None or answer.strip()
        same_answer(text, "18"), same_answer("18", text), answer_key(text)
        assert same_answer(text, text) == bool(answer_key(text))


HOSTILE = [
    "#### ",
    "\\boxed{",
    "answer ",
    "answer is ",
    "A: ",
    "\n",
    " ",
    "1",
    "1,",
    "1 ",
    "1/",
    "-",
    "\\frac{",
    "\u0301",
    "a",
]


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("piece", HOSTILE)
def test_a_megabyte_of_any_piece_is_read_like_a_short_text(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))  # with quadratic time, this takes hours
    extract_answer(text, last_number=True)
    assert not same_answer(text, "18")
    assert extract_answer(text + "\n#### 18") == "18"
