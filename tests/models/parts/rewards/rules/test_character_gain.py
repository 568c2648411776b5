"""The character error, token by token: distances by hand and by definition, and sums that are one minus its rate."""

from functools import cache
from random import Random

import pytest

from models.base.errors import UserError
from models.method.problem import KnownAnswer, Problem
from models.method.rollout import Rollout
from models.parts.rewards.rules.character_gain import CharacterGain, distances
from tests.support.tiny_resources import CODEC, make_resources


def by_definition(text: str, target: str) -> int:
    """Return the edit distance by its recursive definition."""

    @cache
    def distance(first: int, second: int) -> int:
        if not first or not second:
            return first + second
        changed = distance(first - 1, second - 1) + (text[first - 1] != target[second - 1])
        return min(changed, distance(first - 1, second) + 1, distance(first, second - 1) + 1)

    return distance(len(text), len(target))


def written(text: str, problem: Problem) -> Rollout:
    [ids] = CODEC.completions([text])
    return Rollout(problem, 0, tuple(ids), None, text, True)


def test_distances_of_all_beginnings_by_hand() -> None:
    assert distances("kitten", "sitting") == [7, 7, 6, 5, 4, 4, 3]
    assert distances("", "abc") == [3] and distances("ab", "") == [0, 1, 2]


def test_distances_are_those_of_the_definition() -> None:
    chance = Random(3)
    for _ in range(40):
        text, target = ("".join(chance.choices("abc", k=chance.randrange(7))) for _ in range(2))
        expected = [by_definition(text[:stop], target) for stop in range(len(text) + 1)]
        assert distances(text, target) == expected


def test_the_values_add_up_to_one_minus_the_error_rate() -> None:
    problem = Problem("p", "", "1 + 2 = 3", tokens=(3,))
    for text in ("1 + 2 = 3", "1 + 2 = 4", "1 +", "7", "1 + 2 = 3 ; 4 ; 5 ; 6"):
        [row] = CharacterGain().tokens(make_resources(), [written(text, problem)])
        assert float(row.sum()) == pytest.approx(
            1 - by_definition(text, problem.answer) / len(problem.answer), abs=1e-6
        )


def test_a_right_token_is_paid_where_it_is_written_and_a_surplus_one_costs() -> None:
    problem = Problem("p", "", "1 2", tokens=(3,))
    [row] = CharacterGain().tokens(make_resources(), [written("1 2 7", problem)])
    # three characters: "1" is one, " 2" two; " 7" is a surplus of two; the end token adds no text
    assert row.tolist() == pytest.approx([1 / 3, 2 / 3, -2 / 3, 0.0])
    [wrong] = CharacterGain().tokens(make_resources(), [written("3 2", problem)])
    assert wrong.tolist() == pytest.approx([0.0, 2 / 3, 0.0])


def test_the_target_may_be_a_demonstration_without_a_flaw() -> None:
    ids = tuple(CODEC.completions(["7"])[0])
    known = (KnownAnswer("demonstration", ids, "3", "slip"), KnownAnswer("demonstration", ids, "7"))
    reward = CharacterGain(against="demonstration")
    [row] = reward.tokens(make_resources(), [written("7", Problem("p", "", "1", tokens=(3,), known=known))])
    assert row.tolist() == [1.0, 0.0] and not reward.needs_answers and CharacterGain().needs_answers
    with pytest.raises(UserError, match=r"problem p has no demonstration; set rollouts\.reads to demonstrations"):
        reward.tokens(make_resources(), [written("7", Problem("p", "", "1", tokens=(3,)))])
