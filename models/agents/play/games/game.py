"""The protocol of a game of several seats: immutable states, actions that are words, and what each seat knows.

Chance moves first, if at all; then the seats move in turn. The information set of a seat is its view of the deal and
every action since. All players see all actions.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

State = tuple[str, ...]
"""The deal, and then every action, in order."""
Knows = tuple[str, ...]
"""Information set of a seat: its view of the deal, and then every action, in order."""
Strategy = Mapping[Knows, Sequence[float]]
"""Probability of each action, in the order of `Game.actions`, at each information set of one seat."""
Profile = Sequence[Strategy]
"""A strategy for each seat."""


class Game(Protocol):
    """Interface of the rules of a game, without randomness or memory of their own."""

    name: str
    seats: int
    least: float
    """The worst possible outcome for a seat, which is also the cost of a turn that is not an action."""

    @abstractmethod
    def deals(self) -> Sequence[tuple[float, str]]:
        """Return the possible deals with their probabilities."""
        ...

    @abstractmethod
    def dealt(self, deal: str, seat: int) -> str:
        """Return a seat's view of the deal, with which its information sets begin; empty: it sees nothing."""
        ...

    @abstractmethod
    def mover(self, state: State) -> int | None:
        """Return the seat to move; None: the game is over."""
        ...

    @abstractmethod
    def actions(self, state: State) -> tuple[str, ...]:
        """Return the actions of the seat to move."""
        ...

    @abstractmethod
    def worth(self, state: State) -> tuple[float, ...]:
        """Return the outcome for each seat, [seats], once the game is over."""
        ...


def knows(game: Game, state: State, seat: int) -> Knows:
    """Return the information set of a seat in a state."""
    return (game.dealt(state[0], seat), *state[1:])


def read_action(turn: str, actions: Sequence[str], free: bool = False) -> str:
    """Return the action that a turn expresses; empty: none.

    Args:
        turn: text of the turn.
        actions: actions that may be taken.
        free: whether a turn may contain other words, if it names exactly one action; else it must equal the action.
    """
    words = " ".join(turn.lower().split())
    if not free:
        return words if words in actions else ""
    named = [action for action in actions if f" {action} " in f" {words} "]
    return named[0] if len(named) == 1 else ""


def known_state(game: Game, deal: str, known: str) -> tuple[int, State]:
    """Return the seat and the state for an information set, given as the words of `knows` joined with spaces.

    Args:
        game: game in which a seat's view of the deal identifies the seat.
        deal: deal of the game.
        known: information set in a state in which the game is not over.
    """
    seat = next(seat for seat in range(game.seats) if known.startswith(game.dealt(deal, seat)))
    state: State = (deal,)
    rest = known.removeprefix(game.dealt(deal, seat)).strip()
    while rest:
        action = next(action for action in game.actions(state) if f"{rest} ".startswith(f"{action} "))
        state, rest = (*state, action), rest.removeprefix(action).strip()
    return seat, state


def states(game: Game) -> Iterator[State]:
    """Yield every state in which a seat is to move, for each deal from its beginning on."""
    open_states: list[State] = [(deal,) for _, deal in reversed(game.deals())]
    while open_states:
        state = open_states.pop()
        if game.mover(state) is not None:
            yield state
            open_states += [(*state, action) for action in reversed(game.actions(state))]


def information_sets(game: Game) -> list[dict[Knows, tuple[str, ...]]]:
    """Return the actions at every information set of each seat, [seats]."""
    sets: list[dict[Knows, tuple[str, ...]]] = [{} for _ in range(game.seats)]
    for state in states(game):
        mover = game.mover(state)
        assert mover is not None
        sets[mover].setdefault(knows(game, state, mover), game.actions(state))
    return sets


def uniform(game: Game) -> list[dict[Knows, tuple[float, ...]]]:
    """Return the uniform strategy of each seat."""
    return [
        {known: (1 / len(actions),) * len(actions) for known, actions in of_seat.items()}
        for of_seat in information_sets(game)
    ]
