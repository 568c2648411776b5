"""Kuhn poker (Kuhn 1950): three cards, one for each of two players, one ante each and one bet of the same size.

    first      check or bet;  after check and bet: fold or call
    second     after check: check or bet;  after bet: fold or call

Its equilibria are known. With a in [0, 1/3] the first player bets a jack with probability a, a queen never, a king with
3a, and calls with a queen with a + 1/3; the second bets a jack after a check with 1/3, calls a bet with a queen with
1/3, and always bets and calls with a king. The first player loses 1/18 of an ante per game.
"""

from __future__ import annotations

from models.agents.play.games.game import State

_CARDS = "jack", "queen", "king"


class KuhnPoker:
    """Kuhn poker; a deal is both cards, the first player's first, separated by a space."""

    name = "kuhn_poker"
    seats = 2
    least = -2.0

    def deals(self) -> list[tuple[float, str]]:
        """Return the six deals, equally likely."""
        return [(1 / 6, f"{mine} {other}") for mine in _CARDS for other in _CARDS if mine != other]

    def dealt(self, deal: str, seat: int) -> str:
        """Return the seat's position and its own card."""
        return f"{('first', 'second')[seat]} {deal.split()[seat]}"

    def mover(self, state: State) -> int | None:
        """Return the seat to move: the first, the second, and the first again after a check and a bet."""
        actions = state[1:]
        if actions in ((), ("check",), ("bet",), ("check", "bet")):
            return len(actions) % 2
        return None

    def actions(self, state: State) -> tuple[str, ...]:
        """Return check and bet; after a bet fold and call."""
        return ("fold", "call") if state[-1] == "bet" else ("check", "bet")

    def worth(self, state: State) -> tuple[float, ...]:
        """Return antes won: one for the seat with the higher card or that did not fold, two if a bet was called."""
        if state[-1] == "fold":
            folded = len(state) % 2  # the first seat is to move if the state is the deal and an even number of actions
            first = -1.0 if folded == 0 else 1.0
        else:
            mine, other = (_CARDS.index(card) for card in state[0].split())
            first = (2.0 if state[-1] == "call" else 1.0) * (1 if mine > other else -1)
        return first, -first
