"""Who is the mole: hidden roles, a discussion and a vote, for three (social deduction in small; paper 5, arXiv
2502.06060).

    dealt         red mole          blue saw red          green crew        one of the crew saw who it is
    discussion    each in turn says that it saw another, or passes          saw red
    vote          each in turn names another                                vote red

Everybody hears everything. Who has most votes is out, and the crew wins where that is the mole; where all have as many
the mole has won. Words cost nothing and prove nothing: whom to believe is the game.
"""

from __future__ import annotations

from collections import Counter

from models.episodes.games.game import State

SEATS = "red", "blue", "green"
PASS = "pass"


class Mole:
    """A deal is the mole and who saw it, a space between."""

    name = "mole"
    seats = len(SEATS)
    least = -2.0

    def deals(self) -> list[tuple[float, str]]:
        """Six, alike."""
        return [(1 / 6, f"{mole} {witness}") for mole in SEATS for witness in SEATS if mole != witness]

    def dealt(self, deal: str, seat: int) -> str:
        """Who it is, its role, and what it saw."""
        mole, witness = deal.split()
        role = {mole: "mole", witness: f"saw {mole}"}.get(SEATS[seat], "crew")
        return f"{SEATS[seat]} {role}"

    def mover(self, state: State) -> int | None:
        """By turns, twice round."""
        return (len(state) - 1) % self.seats if len(state) <= 2 * self.seats else None

    def actions(self, state: State) -> tuple[str, ...]:
        """What may be said in the discussion, then the votes."""
        seat = (len(state) - 1) % self.seats
        if len(state) > self.seats:
            return self.accusations(seat)
        return (*(f"saw {name}" for name in self._others(seat)), PASS)

    def worth(self, state: State) -> tuple[float, ...]:
        """One for each of the crew and two less for the mole, or the other way round."""
        (name, most), *rest = Counter(vote.split()[1] for vote in state[1 + self.seats :]).most_common()
        mole = self.guilty(state[0])
        caught = SEATS[mole] == name and all(count < most for _, count in rest)
        return tuple((1.0 if caught else -1.0) * (-2 if seat == mole else 1) for seat in range(self.seats))

    def guilty(self, deal: str) -> int:
        """The mole's seat."""
        return SEATS.index(deal.split()[0])

    def accusations(self, seat: int) -> tuple[str, ...]:
        """What a seat says of whom it takes for the mole: its votes."""
        return tuple(f"vote {name}" for name in self._others(seat))

    def accused(self, accusation: str) -> int:
        """The seat that an accusation names."""
        return SEATS.index(accusation.split()[1])

    def _others(self, seat: int) -> tuple[str, ...]:
        return tuple(name for name in SEATS if name != SEATS[seat])
