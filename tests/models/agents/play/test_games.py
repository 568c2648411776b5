"""Rules of games and their solutions, compared with known values and with independent computations."""

import itertools
from collections.abc import Sequence

import pytest

from models.agents.play.games import GAMES
from models.agents.play.games.game import Knows, Profile, State, information_sets, states, uniform
from models.agents.play.games.kuhn_poker import KuhnPoker
from models.agents.play.games.solving import best_response, exploitability, regret_matching, value
from models.agents.play.games.tic_tac_toe import TicTacToe

KUHN = KuhnPoker()


def equilibrium(alpha: float) -> list[dict[Knows, tuple[float, float]]]:
    """Return the equilibrium of Kuhn's family for alpha; the numbers are the probabilities of bet or call."""
    first = {
        ("first jack",): alpha,
        ("first queen",): 0.0,
        ("first king",): 3 * alpha,
        ("first jack", "check", "bet"): 0.0,
        ("first queen", "check", "bet"): alpha + 1 / 3,
        ("first king", "check", "bet"): 1.0,
    }
    second = {
        ("second jack", "check"): 1 / 3,
        ("second queen", "check"): 0.0,
        ("second king", "check"): 1.0,
        ("second jack", "bet"): 0.0,
        ("second queen", "bet"): 1 / 3,
        ("second king", "bet"): 1.0,
    }
    return [{known: (1 - p, p) for known, p in of_seat.items()} for of_seat in (first, second)]


def test_kuhn_poker_has_twelve_information_sets_and_thirty_ends() -> None:
    assert [len(of_seat) for of_seat in information_sets(KUHN)] == [6, 6]
    ends = [(*state, action) for state in states(KUHN) for action in KUHN.actions(state)]
    assert sum(KUHN.mover(state) is None for state in ends) == 6 * 5


@pytest.mark.parametrize(
    "state, won",
    [
        (("jack king", "check", "check"), -1),
        (("king jack", "check", "check"), 1),
        (("jack king", "bet", "fold"), 1),
        (("queen jack", "check", "bet", "fold"), -1),
        (("queen jack", "bet", "call"), 2),
        (("jack queen", "check", "bet", "call"), -2),
    ],
)
def test_what_is_won_in_kuhn_poker_is_what_the_rules_say(state: State, won: float) -> None:
    assert KUHN.worth(state) == (won, -won)


@pytest.mark.parametrize("alpha", [0.0, 0.1, 1 / 3])
def test_the_known_equilibria_cannot_be_exploited_and_are_worth_an_eighteenth_to_the_second(alpha: float) -> None:
    profile = equilibrium(alpha)
    assert exploitability(KUHN, profile) == pytest.approx(0.0, abs=1e-12)
    assert value(KUHN, profile) == pytest.approx((-1 / 18, 1 / 18), abs=1e-12)


def pure(seat: int) -> Sequence[dict[Knows, tuple[float, ...]]]:
    """Return every deterministic strategy of a seat."""
    sets = information_sets(KUHN)[seat]
    return [
        dict(zip(sets, [(1.0, 0.0) if choice == 0 else (0.0, 1.0) for choice in picks], strict=True))
        for picks in itertools.product((0, 1), repeat=len(sets))
    ]


@pytest.mark.parametrize("profile", [uniform(KUHN), equilibrium(0.2)], ids=["uniform", "equilibrium"])
def test_a_best_response_is_the_best_of_all_pure_strategies(profile: Profile) -> None:
    first = max(value(KUHN, [mine, profile[1]])[0] for mine in pure(0))
    second = max(value(KUHN, [profile[0], mine])[1] for mine in pure(1))
    assert best_response(KUHN, profile, 0) == pytest.approx(first, abs=1e-12)
    assert best_response(KUHN, profile, 1) == pytest.approx(second, abs=1e-12)


def test_playing_at_random_can_be_exploited_by_eleven_twenty_fourths() -> None:
    assert best_response(KUHN, uniform(KUHN), 0) == pytest.approx(1 / 2)
    assert best_response(KUHN, uniform(KUHN), 1) == pytest.approx(5 / 12)
    assert exploitability(KUHN, uniform(KUHN)) == pytest.approx(11 / 24)


def test_regret_matching_reaches_the_known_family_of_equilibria() -> None:
    average = regret_matching(KUHN, 1500)
    assert exploitability(KUHN, average) < 0.01
    assert value(KUHN, average)[0] == pytest.approx(-1 / 18, abs=0.003)
    alpha = average[0]["first jack",][1]
    assert 0 <= alpha <= 1 / 3 + 0.02
    assert average[0]["first king",][1] == pytest.approx(3 * alpha, abs=0.05)
    assert average[0]["first queen", "check", "bet"][1] == pytest.approx(alpha + 1 / 3, abs=0.05)
    assert average[1]["second queen", "bet"][1] == pytest.approx(1 / 3, abs=0.05)


def test_tic_tac_toe_ends_with_a_row_or_a_full_board_and_perfect_play_draws() -> None:
    game = TicTacToe()
    won = ("", "a1", "b1", "a2", "b2", "a3")
    assert game.mover(won) is None and game.worth(won) == (1.0, -1.0)
    full = ("", "a1", "b1", "c1", "b2", "a2", "c2", "b3", "a3", "c3")
    assert game.mover(full) is None and game.worth(full) == (0.0, 0.0)
    assert game.mover(won[:-1]) == 0 and "a1" not in game.actions(won[:-1])
    known: dict[tuple[frozenset[str], frozenset[str]], float] = {}

    def best(state: State) -> float:
        mover = game.mover(state)
        if mover is None:
            return game.worth(state)[0]
        board = frozenset(state[1::2]), frozenset(state[2::2])
        if board not in known:
            values = [best((*state, action)) for action in game.actions(state)]
            known[board] = max(values) if mover == 0 else min(values)
        return known[board]

    assert best(("",)) == 0.0
    assert set(GAMES) == {"kuhn_poker", "tic_tac_toe", "mole"}


@pytest.mark.parametrize(
    "votes, worth",
    [
        (("green", "red", "red"), (-2.0, 1.0, 1.0)),
        (("green", "green", "red"), (2.0, -1.0, -1.0)),
        (("blue", "green", "red"), (2.0, -1.0, -1.0)),
    ],
)
def test_the_crew_wins_where_most_votes_name_the_mole_and_loses_a_draw(
    votes: tuple[str, ...], worth: tuple[float, ...]
) -> None:
    game = GAMES["mole"]
    state = ("red blue", "saw green", "saw red", "pass", *(f"vote {name}" for name in votes))
    assert game.mover(state) is None and game.worth(state) == worth
    assert [game.dealt(state[0], seat) for seat in range(3)] == ["red mole", "blue saw red", "green crew"]
    assert len(list(states(game))) == 6 * (1 + 3 + 9 + 27 + 54 + 108)
