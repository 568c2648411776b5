"""The environment `synthesis`: no rewriting changes a truth table, and the goal is the least size by enumeration."""

import json
from itertools import product
from random import Random

import pytest

from models.agents.environments.synthesis import Synthesis
from models.agents.play.boolean_formulas import (
    REWRITINGS,
    Formula,
    joined,
    least_size,
    parse_formula,
    rewritten,
    size_of,
    written,
)
from models.agents.play.circuits import holds
from models.agents.small_sets.synthesis import SET, best_sequence
from models.base.errors import UserError
from models.method.environment import EnvironmentAnswer
from models.method.problem import Problem

TEXT = "(a and b) or (a and not b) or (a and c)"


def random_formula(random: Random, depth: int) -> Formula:
    if not depth or random.random() < 0.2:
        return random.choice("abcd")
    if random.random() < 0.3:
        return ("not", random_formula(random, depth - 1))
    return joined(
        random.choice(["and", "or"]), [random_formula(random, depth - 1) for _ in range(random.randint(2, 3))]
    )


def table(formula: Formula) -> list[bool]:
    """Return the truth table by another evaluation of formulas, which has no constants."""
    text = written(formula).replace("True", "(a or not a)").replace("False", "(a and not a)")
    return [holds(text, dict(zip("abcd", values, strict=True))) for values in product([False, True], repeat=4)]


def play(turns: list[str], text: str = TEXT, steps: int = 4) -> list[EnvironmentAnswer]:
    opened = Synthesis(steps=steps).open(Problem("p", text, json.dumps({"formula": text})))
    opened.reset(0)
    answers = []
    for turn in turns:
        answers.append(opened.step(turn))
        if answers[-1][2]:
            break
    return answers


@pytest.mark.parametrize("way", REWRITINGS)
def test_a_rewriting_keeps_the_truth_table(way: str) -> None:
    random, changed = Random(way), 0
    for _ in range(150):
        formula = random_formula(random, 3)
        new = rewritten(formula, way)
        assert table(new) == table(formula)
        changed += new != formula
    assert changed >= 15


@pytest.mark.parametrize(
    ("way", "before", "after"),
    [
        ("simplify", "a and a and not not b", "a and b"),
        ("simplify", "a or (b and not b)", "a"),
        ("simplify", "a or True", "True"),
        ("absorb", "a and (a or b)", "a"),
        ("absorb", "a or (a and b and c) or (b and a)", "a"),
        ("absorb", "(a and b and c) or (b and a)", "a and b"),
        ("inward", "not (a and b)", "not a or not b"),
        ("outward", "not a and c and not b", "c and not (a or b)"),
        ("factor", "(a and b) or (a and c)", "a and (b or c)"),
        ("factor", "(a or b) and (a or c)", "a or (b and c)"),
        ("spread", "a and (b or c)", "(a and b) or (a and c)"),
        ("spread", "a", "a"),
    ],
)
def test_rewritings_by_hand(way: str, before: str, after: str) -> None:
    assert rewritten(parse_formula(before), way) == parse_formula(after)


def test_sizes_by_hand_and_texts_are_read_back() -> None:
    sizes = {"a": 0, "not a": 1, "a and b and c": 2, TEXT: 6, "not (a or b)": 2}
    assert {text: size_of(parse_formula(text)) for text in sizes} == sizes
    random = Random(1)
    for _ in range(100):
        formula = random_formula(random, 3)
        assert parse_formula(written(formula)) == formula


def test_the_reward_is_the_share_of_gates_that_were_saved() -> None:
    answers = play(["factor", "simplify", "absorb", "done"])
    assert answers[-1][1] == pytest.approx((6 - least_size(parse_formula(TEXT), 4)) / 6) == 1.0
    assert answers[-1][4]["solved"] and answers[0][:3] == ("4", 0.0, False)
    assert play(["spread", "done"], "a and (b or c)")[-1][1] == -0.5


def test_the_least_size_is_that_of_all_sequences() -> None:
    random = Random(2)
    for _ in range(3):
        formula = parse_formula(SET.draw(random).prompt)
        sizes = []
        for ways in product(REWRITINGS, repeat=3):
            each, passed = formula, [size_of(formula)]
            for way in ways:
                each = rewritten(each, way)
                passed.append(size_of(each))
            sizes.append(min(passed))
        assert least_size(formula, 3) == min(sizes)


def test_the_best_sequence_reaches_the_goal_and_random_ones_rarely() -> None:
    random, scripted, aimless = Random(3), [], []
    for _ in range(30):
        text = SET.draw(random).prompt
        scripted.append(play(best_sequence(parse_formula(text), 4), text)[-1][4]["solved"])
        aimless.append(play([random.choice(list(REWRITINGS)) for _ in range(4)], text)[-1][4]["solved"])
    assert all(scripted) and sum(aimless) <= 9


def test_an_unknown_turn_counts_and_changes_nothing() -> None:
    answers = play(["shorten", "factor"], steps=2)
    assert answers[0][0].startswith("error: simplify, absorb") and answers[0][4]["state"] == written(
        parse_formula(TEXT)
    )
    assert answers[1][2] and answers[1][1] == pytest.approx(2 / 6)


@pytest.mark.parametrize(
    ("formula", "line"),
    [
        ("a", "problem p: its formula has no gate"),
        ("a xor b", "problem p: 'a xor b' is not a formula of names"),
        ("f(a) and b", "problem p: a formula has only names"),
        ("", "problem p: the answer is none of environment synthesis"),
    ],
)
def test_what_is_no_formula_is_refused_in_a_line(formula: str, line: str) -> None:
    with pytest.raises(UserError, match=line):
        Synthesis().open(Problem("p", "", json.dumps({"formula": formula})))
