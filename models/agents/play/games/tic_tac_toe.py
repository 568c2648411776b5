"""Tic-tac-toe: three in a row win. Fields are a1 to c3, with a letter for the column."""

from __future__ import annotations

from models.agents.play.games.game import State

_FIELDS = tuple(f"{column}{row}" for row in "123" for column in "abc")
_ROWS = (
    *(tuple(f"{column}{row}" for column in "abc") for row in "123"),
    *(tuple(f"{column}{row}" for row in "123") for column in "abc"),
    ("a1", "b2", "c3"),
    ("c1", "b2", "a3"),
)


class TicTacToe:
    """Tic-tac-toe, a game without a deal or hidden information."""

    name = "tic_tac_toe"
    seats = 2
    least = -1.0

    def deals(self) -> list[tuple[float, str]]:
        """Return the only deal, which is empty."""
        return [(1.0, "")]

    def dealt(self, deal: str, seat: int) -> str:
        """Return the seat's sign: the first plays x."""
        return "xo"[seat]

    def mover(self, state: State) -> int | None:
        """Return the seat to move, in turn until a row is complete or all fields are taken."""
        return None if len(state) == 10 or _winner(state) is not None else (len(state) - 1) % 2

    def actions(self, state: State) -> tuple[str, ...]:
        """Return every free field."""
        return tuple(field for field in _FIELDS if field not in state[1:])

    def worth(self, state: State) -> tuple[float, ...]:
        """Return 1 for the seat with a row and -1 for the other, zero for both without a row."""
        winner = _winner(state)
        return (0.0, 0.0) if winner is None else ((1.0, -1.0) if winner == 0 else (-1.0, 1.0))


def _winner(state: State) -> int | None:
    for seat in (0, 1):
        taken = set(state[1:][seat::2])
        if any(taken.issuperset(row) for row in _ROWS):
            return seat
    return None
