"""Cross-play of populations with known payoffs: shared and zero-sum games, held-out partners, and the turns played."""

import numpy as np
import pytest

from models.agents.strategies.cross_play import CrossPlayed
from models.base.errors import UserError
from models.evaluation.cross_play import cross_play, payoff
from models.evaluation.records import Completion
from tests.support.tiny_strategies import Scripted, ask_of, turns_of

CHANCES = {"left": 0.9, "right": 0.2, "mixed": 0.5}
"""The probability with which each member of a population goes left."""


def meeting(player: str, partner: str) -> list[float]:
    """Return the expected payoff, for two equal problems, of a game that both players win if they go the same way."""
    p, q = CHANCES[player], CHANCES[partner]
    return [p * q + (1 - p) * (1 - q)] * 2


def pennies(player: str, partner: str) -> list[float]:
    """Return the expected payoff of matching pennies: 1 for the player if both agree, and -1 if they do not."""
    return [2 * value - 1 for value in meeting(player, partner)]


def test_of_a_shared_game_the_matrix_is_symmetric_and_its_entries_are_those_by_hand() -> None:
    played = cross_play(list(CHANCES), list(CHANCES), meeting)
    by_hand = [[0.82, 0.26, 0.5], [0.26, 0.68, 0.5], [0.5, 0.5, 0.5]]
    np.testing.assert_allclose(played.matrix, by_hand, atol=1e-12)
    np.testing.assert_allclose(played.matrix, played.matrix.T, atol=1e-12)
    assert played.self_play == pytest.approx((0.82 + 0.68 + 0.5) / 3)
    assert played.cross_play == pytest.approx((2 * 0.26 + 4 * 0.5) / 6)


def test_where_one_wins_what_the_other_loses_the_matrix_is_its_own_transpose_turned_round() -> None:
    first = cross_play(list(CHANCES), list(CHANCES), pennies).matrix
    second = cross_play(list(CHANCES), list(CHANCES), lambda i, j: [-value for value in pennies(j, i)]).matrix
    np.testing.assert_allclose(first, -second.T, atol=1e-12)


def test_partners_that_are_held_out_give_no_self_play() -> None:
    played = cross_play(["left"], ["right", "mixed"], meeting)
    assert np.isnan(played.self_play) and played.cross_play == pytest.approx((0.26 + 0.5) / 2)
    cell = played.interval("left", "right")
    assert (cell.low, cell.estimate, cell.high) == pytest.approx((0.26, 0.26, 0.26))


def test_a_name_that_stands_twice_is_refused() -> None:
    with pytest.raises(UserError, match="players are to be named once each"):
        cross_play(["left", "left"], ["right"], meeting)


def test_what_an_episode_paid_is_the_sum_over_its_turns() -> None:
    turns = '[{"text": "bet", "response": "call", "reward": 0.5}, {"text": "", "response": "", "reward": -2.0}]'
    assert payoff(Completion("bet", 3, False, True, turns=turns)) == -1.5
    assert payoff(Completion("bet", 3, True, True)) == 1.0


def test_a_turn_is_made_behind_the_belief_and_the_belief_is_no_part_of_it() -> None:
    def says(text: str, seed: int) -> str:
        return "they go left" if text.endswith("other?\n") else "left" if "they go left" in text else "right"

    strategy = CrossPlayed(foresee="other?", act="you?")
    policy = Scripted(says)
    (turn,), asked = turns_of(strategy, policy, [ask_of("Q")])
    assert turn == "left" and asked.spent.calls == 2 < strategy.most_calls
    assert policy.heard == ["Q|\nother?\n", "Q|\nother?\nthey go left|\nyou?\n"]
    (turn,), asked = turns_of(CrossPlayed(foresee=""), Scripted(says), [ask_of("Q")])
    assert turn == "right" and asked.spent.calls == 1
