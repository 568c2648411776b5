"""What a game of several seats is: states that never change, actions that are words, and what each seat knows.

Chance moves first, if at all; then the seats move in turn. What a seat knows is what it was told at the beginning and
every action since: its information set. All players see all actions.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

State = tuple[str, ...]
"""What chance dealt, and then every action, in order."""
Knows = tuple[str, ...]
"""What a seat knows: what it was told at first, and then every action, in order."""
Strategy = Mapping[Knows, Sequence[float]]
"""Probability of each action, in the order of `Game.actions`, at each information set of one seat."""
Profile = Sequence[Strategy]
"""A strategy for each seat."""


class Game(Protocol):
    """Rules alone: no chance of their own and no memory."""

    name: str
    seats: int
    least: float
    """The worst that can happen to a seat, which is what a turn that is no action costs it."""

    @abstractmethod
    def deals(self) -> Sequence[tuple[float, str]]:
        """What chance may deal, with its probabilities."""
        ...

    @abstractmethod
    def dealt(self, deal: str, seat: int) -> str:
        """What a seat knows of the deal: the beginning of its view. Empty: nothing."""
        ...

    @abstractmethod
    def mover(self, state: State) -> int | None:
        """Whose turn it is; None: the game is over."""
        ...

    @abstractmethod
    def actions(self, state: State) -> tuple[str, ...]:
        """What the mover may say."""
        ...

    @abstractmethod
    def worth(self, state: State) -> tuple[float, ...]:
        """What each seat has won, [seats], as the game is over."""
        ...


def knows(game: Game, state: State, seat: int) -> Knows:
    """The information set of a seat in a state."""
    return (game.dealt(state[0], seat), *state[1:])


def read_action(turn: str, actions: Sequence[str], free: bool = False) -> str:
    """The action that a turn is; empty: it is none.

    Args:
        turn: what was said.
        actions: those that may be taken.
        free: whether it is the action that it names, whatever else it says, where it names one alone; else it is that
            to the letter.
    """
    words = " ".join(turn.lower().split())
    if not free:
        return words if words in actions else ""
    named = [action for action in actions if f" {action} " in f" {words} "]
    return named[0] if len(named) == 1 else ""


def known_state(game: Game, deal: str, known: str) -> tuple[int, State]:
    """A seat and a state by what the seat knows there, words that `knows` gives with spaces between.

    Args:
        game: in which what a seat is told at first tells which seat it is.
        deal: what chance dealt.
        known: of a state in which the game is not over.
    """
    seat = next(seat for seat in range(game.seats) if known.startswith(game.dealt(deal, seat)))
    state: State = (deal,)
    rest = known.removeprefix(game.dealt(deal, seat)).strip()
    while rest:
        action = next(action for action in game.actions(state) if f"{rest} ".startswith(f"{action} "))
        state, rest = (*state, action), rest.removeprefix(action).strip()
    return seat, state


def states(game: Game) -> Iterator[State]:
    """Every state in which somebody is to move, each deal's from its beginning on."""
    open_states: list[State] = [(deal,) for _, deal in reversed(game.deals())]
    while open_states:
        state = open_states.pop()
        if game.mover(state) is not None:
            yield state
            open_states += [(*state, action) for action in reversed(game.actions(state))]


def information_sets(game: Game) -> list[dict[Knows, tuple[str, ...]]]:
    """The actions at every information set of each seat, [seats]."""
    sets: list[dict[Knows, tuple[str, ...]]] = [{} for _ in range(game.seats)]
    for state in states(game):
        mover = game.mover(state)
        assert mover is not None
        sets[mover].setdefault(knows(game, state, mover), game.actions(state))
    return sets


def uniform(game: Game) -> list[dict[Knows, tuple[float, ...]]]:
    """Every action alike, a strategy for each seat."""
    return [
        {known: (1 / len(actions),) * len(actions) for known, actions in of_seat.items()}
        for of_seat in information_sets(game)
    ]
