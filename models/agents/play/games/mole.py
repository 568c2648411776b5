"""The mole: hidden roles, a discussion and a vote, for three seats (small social deduction; paper 5, arXiv 2502.06060).

    dealt         red mole          blue saw red          green crew        one of the crew saw who it is
    discussion    each in turn names another as seen, or passes             saw red
    vote          each in turn names another                                vote red

All seats read all messages. The seat with most votes is out, and the crew wins if that is the mole; if all have the
same number of votes, the mole wins. Messages cost nothing and prove nothing: the game is about which seat to believe.
"""

from __future__ import annotations

from collections import Counter

from models.agents.play.games.game import State

SEATS = "red", "blue", "green"
PASS = "pass"


class Mole:
    """The mole game; a deal is the mole and its witness, separated by a space."""

    name = "mole"
    seats = len(SEATS)
    least = -2.0

    def deals(self) -> list[tuple[float, str]]:
        """Return the six deals, equally likely."""
        return [(1 / 6, f"{mole} {witness}") for mole in SEATS for witness in SEATS if mole != witness]

    def dealt(self, deal: str, seat: int) -> str:
        """Return the seat's name and its role, `mole` or `crew`; for the witness `saw NAME` instead of a role."""
        mole, witness = deal.split()
        role = {mole: "mole", witness: f"saw {mole}"}.get(SEATS[seat], "crew")
        return f"{SEATS[seat]} {role}"

    def mover(self, state: State) -> int | None:
        """Return the seat to move, in turn for two rounds; None: the game is over."""
        return (len(state) - 1) % self.seats if len(state) <= 2 * self.seats else None

    def actions(self, state: State) -> tuple[str, ...]:
        """Return the messages of the discussion, then the votes."""
        seat = (len(state) - 1) % self.seats
        if len(state) > self.seats:
            return self.accusations(seat)
        return (*(f"saw {name}" for name in self._others(seat)), PASS)

    def worth(self, state: State) -> tuple[float, ...]:
        """Return +1 for each of the crew and -2 for the mole if the mole is caught, else the opposite."""
        (name, most), *rest = Counter(vote.split()[1] for vote in state[1 + self.seats :]).most_common()
        mole = self.guilty(state[0])
        caught = SEATS[mole] == name and all(count < most for _, count in rest)
        return tuple((1.0 if caught else -1.0) * (-2 if seat == mole else 1) for seat in range(self.seats))

    def guilty(self, deal: str) -> int:
        """Return the mole's seat."""
        return SEATS.index(deal.split()[0])

    def accusations(self, seat: int) -> tuple[str, ...]:
        """Return the votes of a seat, which name its suspect."""
        return tuple(f"vote {name}" for name in self._others(seat))

    def accused(self, accusation: str) -> int:
        """Return the seat that an accusation names."""
        return SEATS.index(accusation.split()[1])

    def _others(self, seat: int) -> tuple[str, ...]:
        return tuple(name for name in SEATS if name != SEATS[seat])
