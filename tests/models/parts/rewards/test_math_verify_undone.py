"""Answers that leave a computation undone, or state two things, are wrong although SymPy would evaluate them."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from models.answers.expression_workers import Pair, shared_workers
from models.answers.numerals import numeral, without_unit
from models.answers.relations import stated_pairs
from models.answers.undone import leaves_undone
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.parts.rewards.rules.math_verify import MathVerify
from models.task_sets.derivatives import DerivativesSettings


@pytest.fixture(scope="module", autouse=True)
def end_of_workers() -> Iterator[None]:
    yield
    shared_workers(2).close()


def right(expected: str, given: list[str]) -> list[str]:
    """Return the answers that are right."""
    verdicts = MathVerify().right([Attempt(Problem("p", "", expected), f"#### {text}", True) for text in given])
    return [text for text, verdict in zip(given, verdicts, strict=True) if verdict]


UNDONE_NUMBERS = [
    ("391", r"17 \times 23;17 \cdot 23;17(23);\text{17}\times 23;400 - 9;391x^0;17 \times 23 = 391"),
    ("49", "84/2+7;7^2;(3+4)*7;98/2"),
    ("338350", r"\sum_{k=1}^{100} k^2;\sum_{k=1}^{100} k^2 = 338350"),
    (r"\frac{1}{3}", r"\int_0^1 x^2 dx;3^{-1};\frac{7-6}{3};\frac{\frac{1}{1}}{3};0.333333;0.333333333333333333"),
    ("252", r"\binom{10}{5};{10 \choose 5};\frac{10!}{5!5!}"),
    ("1", r"\lim_{x \to 0} \frac{\sin x}{x};\sin(\pi/2);x^0;\log_2 2;e^0;|-1|;\det I"),
    ("2432902008176640000", "20!"),
    ("1267650600228229401496703205376", "2^{100};2^100"),
    ("4", r"1024 \bmod 10;\sqrt{16};2+2;-(-4);8/2;\frac{8}{2}"),
    ("6", r"\gcd(12,18);\text{lcm}(2,3);6!/5!;\operatorname{gcd}(12, 18)"),
    ("5", r"\max(3,5);5y;5ab;\sqrt{25};5!/4!;5_{10};5\text{ or }5;5\text{ not}"),
    ("3", r"\lfloor 3.7 \rfloor;\lceil 2.1 \rceil;\frac{7-1}{2};\min\{3, 4\}"),
    ("1000", r"10^3;10 \times 10^2;100 \cdot 10^1"),
]


@pytest.mark.parametrize(("expected", "given"), UNDONE_NUMBERS)
def test_where_the_answer_is_a_number_what_is_left_to_be_computed_is_wrong(expected: str, given: str) -> None:
    assert right(expected, given.split(";")) == []


WRITTEN_NUMBERS = [
    ("391", r"391;391.0;x = 391;\$391;391\text{ cm}^2;391^\circ;\boxed{391};(391);\{391\};3.91 \times 10^2;391\%"),
    ("0.5", r"\frac{1}{2};\frac12;1/2;\dfrac{1}{2};.5;50/100;\left(\frac{1}{2}\right);5 \times 10^{-1}"),
    (r"2\frac{1}{2}", r"2\frac12;2.5;5/2;\frac{5}{2};2 1/2"),
    (r"\frac{1}{3}", r"0.\overline{3};1/3;\frac{2}{6}"),
    ("1200", r"1{,}200;1,200;1,\!200;\$1200.00;1.2e3;1.2 \cdot 10^{3}"),
    (r"6.02 \times 10^{23}", r"6.02e23;602000000000000000000000;60.2 \times 10^{22};6.02 \cdot 10^{23}"),
    ("10^{-8}", r"0.00000001;1 \times 10^{-8};1e-8;\frac{1}{100000000}"),
    (r"\frac{4}{2}", r"2;4/2;\frac{84}{42}"),
    ("101_2", "101_{2};101"),
    ("5", r"\angle A = 5^\circ;f(x) = 5;\text{Area} = 5\text{ m}^2;AB = 5;x \in \{5\};5 = x"),
]


@pytest.mark.parametrize(("expected", "given"), WRITTEN_NUMBERS)
def test_a_number_is_right_however_it_is_written_out(expected: str, given: str) -> None:
    assert right(expected, given.split(";")) == given.split(";")


@pytest.mark.rotating(of=6)
def test_numbers_are_compared_exactly_however_small_they_are() -> None:
    assert right("10^{-8}", ["0.0", "0", "10^{-9}", "-10^{-8}", r"1.0000001 \times 10^{-8}"]) == []
    assert right(r"e^{-40}", ["0.0", "0", "e^{-41}", "e^{-40}"]) == ["e^{-40}"]
    assert right(r"\frac{\pi}{4}", ["0.785398", "0.7853981633974483", r"\pi/4"]) == [r"\pi/4"]
    assert right("(0.5, 1/3)", ["(0.5, 0.333333)", r"(\frac12, \frac13)"]) == [r"(\frac12, \frac13)"]
    assert right("101_2", ["101_3", "5"]) == []


UNDONE = [
    ("2x", r"\frac{d}{dx} x^2;\frac{d}{dx}(x^2);\frac{\mathrm{d}}{\mathrm{d}x} x^2;\frac{dx^2}{dx}"),
    ("2x", r"(x^2)';\frac{d}{dt} 2xt"),
    (r"2\theta", r"\frac{d}{d\theta} \theta^2;\frac{\partial}{\partial \theta} \theta^2"),
    ("x^2 + C", r"\int 2x dx;\int 2x dx + C"),
    ("6x", r"\gcd(12,18)x;3!x;\lfloor 6.5 \rfloor x;\binom{4}{2}x;|-6|x;\log_2(64) x"),
    ("6x", r"\sqrt{36}x;sqrt(36)x;\sum_{k=1}^3 k x"),
    ("6x", r"2 \prod_{k=1}^{1} 3 x;6\cos(0)x;2\times3x;2 \cdot 3 x;6^1x;\lim_{y \to 6} xy;\operatorname{floor}(6.2)x"),
    ("6x", r"\begin{vmatrix}6&0\\0&1\end{vmatrix}x;\exp(\ln 6) x;\unknowncommand 6x;⌊6.5⌋x;√36 x"),
    (r"\sqrt{2}", r"2\sin(\pi/4);2\cos 45^\circ;\lim_{x \to 2} \sqrt{x}"),
    (r"25\pi", r"5^2\pi;5 \cdot 5\pi;\int_0^5 2\pi r dr"),
    ("(391, 2)", r"(17 \times 23, 2);(391, \sqrt{4});(391, 4/2);(390, 2) + (1, 0)"),
    (r"\{391, 2\}", r"\{17 \times 23, 2\};\{391\} \cup \{2\};x = 17 \times 23, x = 2"),
    (r"(3, \frac{\pi}{2})", r"(\sqrt{9}, \frac{\pi}{2});(1+2, \frac{\pi}{2})"),
    (r"(-\infty, 3]", r"x \le 2+1;(-\infty, \sqrt{9}]"),
    (r"\begin{pmatrix}5\\11\end{pmatrix}",
     r"\begin{pmatrix}1&2\\3&4\end{pmatrix}\begin{pmatrix}1\\2\end{pmatrix};\begin{pmatrix}2+3\\11\end{pmatrix}"),
    ("x = 3", r"2x+1 = 7;x - 3 = 0;x = \frac{7-1}{2};\frac{7-1}{2};x > 2"),
    (r"x = \sqrt{2}", r"2x = 2\sqrt{2}"),
]  # fmt: skip


@pytest.mark.parametrize(("expected", "given"), UNDONE)
def test_an_operation_that_the_expected_expression_has_not_is_wrong(expected: str, given: str) -> None:
    assert right(expected, given.split(";")) == []


EQUIVALENT = [
    ("2x + 6", r"6 + 2x;2(x+3);\frac{4x+12}{2};y = 2x+6;f(x) = 2(x+3);f'(x) = 6 + 2x;2x+6 = 2(x+3)"),
    (r"\sqrt{2}", r"\frac{\sqrt{8}}{2};\frac{2}{\sqrt{2}};2^{1/2};x = \sqrt2;\sqrt{2}\text{ cm};\boxed{\sqrt{2}}"),
    (r"5\sqrt{2}", r"5\sqrt{2}\text{ m};5\sqrt{2} cm;5\sqrt{2}\,\text{cm}^2;5\sqrt2 meters;\sqrt{50}"),
    (r"\binom{n}{2}", r"\frac{n(n-1)}{2}"),
    ("n!", "n(n-1)!"),
    (r"\sin x + C", r"C + \sin x;\sin(x)+C"),
    ("3x^2", r"x^2 \cdot 3;3 \cdot x^2;3x \cdot x"),
    ("2^{x+3}", r"8 \cdot 2^x;2^3 \cdot 2^x"),
    (r"\frac{1}{2}(x+1)", r"(x+1)/2;0.5(x+1);\frac{x+1}{2}"),
    ("x+2m", "2m+x"),
    ("6ab", "6ba;6 a b"),
    (r"\{1, 2\}", r"2, 1;x = 1, x = 2;x = 1 \text{ or } x = 2;\{2,1\}"),
    ("(1, 2)", r"\left(1, 2\right);(1.0, 2);x = 1, y = 2"),
    (r"1 \pm \sqrt{2}", r"1+\sqrt{2}, 1-\sqrt{2};x = 1 \pm \sqrt{2};\{1-\sqrt2, 1+\sqrt2\}"),
    (r"(-\infty,1)\cup(2,\infty)", r"(-\infty, 1) \cup (2, \infty)"),
    (r"x<1 \text{ or } x>2", r"x > 2 \text{ or } x < 1;x<1 or x>2"),
    ("x = 5", "5;x=5;5 = x;x = 5.0"),
    ("y = 2x+6", "2x+6;y = 2(x+3);2x - y + 6 = 0"),
    (r"x \neq 2", r"x \ne 2"),
    (r"[1,2]", r"x \in [1,2];\left[1, 2\right]"),
    (r"x \in [1,2]", r"[1,2];x \in [1, 2]"),
    ("x > 5", r"5 < x;x \gt 5;(5, \infty)"),
    ("3:2", "3 : 2"),
    (r"\text{(A)}", r"(A);A"),
    (r"2\sqrt{13}\text{ inches}", r"2\sqrt{13};\sqrt{52}"),
]


@pytest.mark.parametrize(("expected", "given"), EQUIVALENT)
def test_equivalent_algebra_and_the_forms_of_answers_are_right(expected: str, given: str) -> None:
    assert right(expected, given.split(";")) == given.split(";")
    assert right(expected, [expected]) == [expected]


SAYS_TWO_THINGS = [
    (r"\sqrt{2}", r"1=2=\sqrt{2};\sqrt{3} = \sqrt{2};\sqrt{2} = \sqrt{3}"),
    (r"\sqrt{2}", r"x = \sqrt{3} = \sqrt{2};\sqrt{2} \approx \sqrt{3};\sqrt{3}, \sqrt{2}"),
    (r"\sqrt{2}", r"\sqrt{2} \approx 7;\sqrt{3} \neq \sqrt{2};\sqrt{2} < 5;\sqrt{2}\text{ or }\sqrt{3}"),
    (r"\sqrt{2}", r"\sqrt{2}\text{ not }\sqrt{3};\sqrt{3} \to \sqrt{2};\sqrt{3} \implies \sqrt{2};\sqrt{3}: \sqrt{2}"),
    ("2x+6", "7 = 2x+6;x = 2x+6;2x+6 = 7;2x+6 = 2x+7;2x+6, 2x+7;x < 2x+6 = 2x+6"),
    ("x = 5", "y = 5;6 = 5;x = 6 = 5;x = 5 = 6;x = 6, x = 5;x = 5, y = 5;5 = 5"),
    ("y = 2x+6", "7 = 2x+6;x = 2x+6;z = 2x+6"),
    ("5", r"5 = 6;6 = 5;x = 6 = 5;x = y = 5;5 \approx 5;x < 5"),
    ("x = y = 2", "x = 7 = 2;x = y = 3"),
    ("(6, 5)", "y = 6, x = 5;x = 5, y = 6;(6,5) or (5,6)"),
    (r"x \neq 2", r"x \neq 3;x = 2;2"),
    ("3:2", "6:4;2:3"),
]  # fmt: skip


@pytest.mark.parametrize(("expected", "given"), SAYS_TWO_THINGS)
def test_an_answer_that_says_two_things_is_wrong(expected: str, given: str) -> None:
    assert right(expected, given.split(";")) == []


def test_letters_behind_an_expression_are_variables_of_it_and_no_unit() -> None:
    assert right("6ab", ["6"]) == right("2d", ["2"]) == right("x+2m", ["x+2"]) == right("2y", ["2"]) == []
    assert right(r"\frac{x+1}{2}", ["x + 1/2"]) == []


@pytest.mark.rotating(of=6)
def test_a_policy_that_copies_the_question_is_paid_for_no_derivative() -> None:
    settings = DerivativesSettings.model_construct(largest=9, kept=0.2, constant=0.2)
    tasks = [settings.draw(Random(seed)) for seed in range(50)]
    forms = (r"\frac{d}{dx} (%s)", r"\frac{d(%s)}{dx}", "(%s)'", r"\frac{d}{d x}\left(%s\right)", "%s")
    copied = [
        Attempt(Problem("p", "", task.answer), f"#### {form % task.prompt.removeprefix('derive ')}", True)
        for task in tasks
        for form in forms
    ]
    assert not any(MathVerify().right(copied))
    sound = [Attempt(Problem("p", "", task.answer), f"#### {task.answer}", True) for task in tasks]
    assert all(MathVerify().right(sound))


def test_a_policy_that_copies_the_question_is_paid_for_no_sum() -> None:
    chance, pairs = Random(0), list[Pair]()
    for _ in range(200):
        value = chance.randint(1, 99)
        said = str(value)
        for _ in range(chance.randint(1, 5)):
            sign, number = chance.choice("+-*"), chance.randint(2, 9)
            said, value = (
                f"({said} {sign} {number})",
                {"+": value + number, "-": value - number, "*": value * number}[sign],
            )
        pairs.append((said, str(value)))
    attempts = [Attempt(Problem("p", "", expected), f"#### {given}", True) for given, expected in pairs]
    assert not any(MathVerify().right(attempts))


HOSTILE = [
    "\\frac{", "\\text{", "\\text{ and }", "1,", "{", "(", "\\{", "=", "x=", "1 ", "\\overline{", "10^", "_{", "d",
    "\\frac d", "}{d", "x, ", "\\le ", "x or ", "1\\times", "'", "\\begin{", "a ", "9", "{9}^", "(9)", "\\infty", "1/",
    "\\ ", "²",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_no_text_whatever_raises_and_long_ones_are_read_like_short_ones(piece: str) -> None:
    for text in (
        piece,
        piece * (400 // len(piece)),
        f"5{piece * 40}",
        f"{piece * 40}5",
        piece * (200_000 // len(piece)),
    ):
        numeral(text)
        without_unit(text)
        if len(text) <= 400:
            assert isinstance(leaves_undone(text, "2x + 6"), bool)
            assert isinstance(stated_pairs(text, "x = 5"), list)
            stated_pairs("x = 5", text)
