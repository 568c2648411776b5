"""Hints and solutions at one budget: each solution reads its hint, and the most frequent answer is the turn."""

import pytest

from models.agents.strategies.hints import Hints
from models.agents.strategies.vote import Vote
from models.base.errors import UserError
from tests.support.tiny_strategies import DRAWN, Scripted, ask_of, turns_of

ASKED, GIVEN = "1+2\nhint?\n", "1+2\nuse {hint}\n"


def policy(right: str = "a") -> Scripted:
    """Return a policy with a hint of one letter that depends on the seed, and that is right only under one letter."""

    def say(text: str, seed: int) -> str:
        if text.endswith("hint?\n"):
            return "ab"[seed % 2]
        return "#### 3" if text.endswith(f"use {right}\n") else "#### 4"

    return Scripted(say)


def hints(number: int, solutions: int) -> Hints:
    return Hints(hints=number, solutions=solutions, asks="hint?", gives="use {prepared}")


@pytest.mark.parametrize("number, solutions", [(1, 8), (2, 8), (4, 8), (8, 8), (3, 8)])
def test_each_hint_gets_an_equal_part_of_the_budget(number: int, solutions: int) -> None:
    engine = policy()
    _, counted = turns_of(hints(number, solutions), engine, [ask_of("1+2", seed=3)], DRAWN)
    asked = [text for text in engine.heard if text == ASKED]
    solved = [text for text in engine.heard if text != ASKED]
    assert len(asked) == number and len(solved) == solutions
    assert counted.spent.calls == number + solutions
    assert set(solved) <= {GIVEN.format(hint=letter) for letter in "ab"}


def test_the_answer_of_most_solutions_is_the_turn() -> None:
    engine = policy()
    requests = [ask_of("1+2", seed=seed) for seed in range(12)]
    turns, _ = turns_of(hints(3, 9), engine, requests, DRAWN)
    right = [0] * 12
    solved = [text for text in engine.heard if text != ASKED]
    for place in range(12):
        right[place] = sum(text.endswith("use a\n") for text in solved[9 * place : 9 * place + 9])
    assert turns == [f"#### {3 if count > 4 else 4}" for count in right]
    assert len(set(turns)) == 2


def test_without_hints_it_is_the_plain_vote_bit_for_bit() -> None:
    requests = [ask_of("1+2", seed=seed) for seed in range(6)]
    answer = Scripted(lambda text, seed: f"#### {seed % 3}")
    ours, _ = turns_of(hints(0, 5), answer, requests, DRAWN)
    theirs, _ = turns_of(Vote(drafts=5), answer, requests, DRAWN)
    assert ours == theirs and len(set(ours)) > 1


def test_an_empty_hint_leaves_the_history_unchanged() -> None:
    engine = Scripted(lambda text, seed: "" if text.endswith("hint?\n") else "#### 3")
    turns, _ = turns_of(hints(2, 2), engine, [ask_of("1+2")], DRAWN)
    assert engine.heard == [ASKED, ASKED, "1+2", "1+2"] and turns == ["#### 3"]


def test_without_room_for_the_hints_the_turn_is_the_policys_own() -> None:
    engine = Scripted(lambda text, seed: "a" * 8 if text.endswith("hint?\n") else "#### 3")
    strategy = Hints(hints=1, solutions=2, asks="hint?", gives="use the hint {prepared}")
    turns, counted = turns_of(strategy, engine, [ask_of("1+2", max_tokens=9)], DRAWN, room=20)
    assert turns == ["#### 3"] and counted.spent.no_room == 2


def test_a_sweep_changes_the_solutions_and_never_leaves_a_hint_without_any() -> None:
    assert hints(4, 8).at_budget(16) == hints(4, 16)
    assert hints(4, 8).at_budget(2) == hints(2, 2)


def test_settings_that_do_not_fit_are_refused_by_a_line() -> None:
    with pytest.raises(UserError, match=r"strategy\.hints is 3, but strategy\.solutions is 2"):
        Hints(hints=3, solutions=2)
    with pytest.raises(UserError, match=r"strategy\.gives: 'use' must contain \{prepared\}"):
        Hints(gives="use")
