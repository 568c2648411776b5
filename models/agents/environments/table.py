"""A table for games of several seats, played by the policy against itself or against players that do not learn.

    opening    the deal of the seat, and the actions before its first turn           second jack bet
    turn       an action of the game                                                 call
    reads      the actions of the others since                                       check

Every seat reads its own view alone: the deals of the others are in none of its tokens. In self-play all seats are the
policy's, and each is a rollout of its own; against others the policy's seat is drawn again for every game. A turn that
is not an action ends the game: its seat gets the worst outcome of the game, and the others share the corresponding
gain. The outcome is the reward of a seat's last turn, and its states are the game's information sets. A problem whose
answer is a deal has that deal, any other has a random one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Literal

from models.agents.play.games import GAMES
from models.agents.play.games.game import Profile, State, knows, read_action, uniform
from models.agents.play.games.solving import regret_matching
from models.base.errors import UserError
from models.method.environment import Environment, EnvironmentAnswer, Info, Seat
from models.method.problem import Problem
from models.method.recipe_paths import ContentPath
from models.method.registry import part

Others = Literal["policy", "frozen", "uniform", "solved"]
ROUNDS = 1000
"""Rounds of regret matching, for the strategy `solved`."""


@part("table")
class Table(Environment):
    """A game for several seats."""

    game: Literal["kuhn_poker", "tic_tac_toe", "mole"] = "kuhn_poker"
    """Name of the game."""
    others: Others = "policy"
    """Player of the other seats. policy: the policy itself, which learns at every seat. frozen: the policy that the run
    began with. uniform: all actions with equal probability. solved: the average strategy of regret matching."""
    measured_against: Literal["frozen", "uniform", "solved"] = "uniform"
    """Player of the other seats in evaluations; a game counts as solved if the policy wins."""
    free: bool = False
    """Whether a turn may contain other words, if it names exactly one action; false: it must equal the action."""
    model: ContentPath = ""
    """Model folder of the player `frozen`; empty: the policy that the run began with."""

    @property
    def several(self) -> bool:
        """Whether models play more than one seat."""
        return self.others in ("policy", "frozen")

    @property
    def learning(self) -> int:
        """Number of seats that learn: all in self-play, otherwise one."""
        return GAMES[self.game].seats if self.others == "policy" else 1

    @property
    def asks_frozen(self) -> bool:
        """Whether a frozen model plays, in training or in evaluations."""
        return "frozen" in (self.others, self.measured_against)

    @property
    def measured(self) -> Table:
        """The environment of evaluations, in which the policy plays against the player of `measured_against`."""
        return replace(self, others=self.measured_against)

    @property
    def frozen(self) -> Path | None:
        """Model folder of the frozen player, if the recipe names one; None: the policy that the run began with."""
        return Path(self.model) if self.model else None

    def with_partner(self, partner: Path) -> Table:
        """Return the environment with the model in the folder `partner` as the opponent."""
        return replace(self, others="frozen", measured_against="frozen", model=str(partner))

    def seats(self, problem: Problem) -> Sequence[Seat]:
        """Return the seats that models play in a new game about `problem`."""
        game = GAMES[self.game]
        if self.others == "policy":
            shared = _SharedGame(self, problem.answer)
            return [Seat(_View(shared, place)) for place in range(game.seats)]
        if self.others == "frozen":
            shared = _SharedGame(self, problem.answer, turned=True)
            views = [_View(shared, place) for place in range(game.seats)]
            return [Seat(views[0]), *(Seat(view, speaker="frozen", learns=False) for view in views[1:])]
        return [
            Seat(_View(_SharedGame(self, problem.answer, turned=True, fixed=fixed_strategy(self.game, self.others)), 0))
        ]

    def open(self, problem: Problem) -> _View:  # type: ignore[override]
        """Open an episode of the only seat that a model plays.

        Raises:
            UserError: models play several seats.
        """
        (seat, *rest) = self.seats(problem)
        if rest:
            raise UserError(f"environment table: {self.others} plays with several seats, not one")
        assert isinstance(seat.opened, _View)
        return seat.opened


@lru_cache(maxsize=4)
def fixed_strategy(game: str, name: str) -> Profile:
    """Return the strategy of each seat, `uniform` or `solved`, which does not learn."""
    return uniform(GAMES[game]) if name == "uniform" else regret_matching(GAMES[game], ROUNDS)


class _SharedGame:
    """The current state of a game, shared by all of its seats."""

    def __init__(self, table: Table, deal: str, turned: bool = False, fixed: Profile | None = None) -> None:
        self.game, self.fixed = GAMES[table.game], fixed
        self._free = table.free
        deals = [entry for entry in self.game.deals() if entry[1] == deal] or self.game.deals()
        self._deals: list[State] = [(deal,) for _, deal in deals]
        self._chances: list[float] = [chance for chance, _ in deals]
        self._turned = turned
        self._random = Random(0)
        self._first = 0
        self.state: State = ("",)
        self.broken: int | None = None
        """The seat whose turn was not an action."""

    def begin(self, seed: int) -> None:
        """Deal the game again; all seats call it in turn, with the same result."""
        self._random = Random(seed)
        self._first = self._random.randrange(self.game.seats) if self._turned else 0
        (self.state,) = self._random.choices(self._deals, self._chances)
        self.broken = None
        self._move_others()

    def player(self, place: int) -> int:
        """Return the seat of the game for a place at the table."""
        return (place + self._first) % self.game.seats

    @property
    def mover(self) -> int | None:
        """The seat to move; None: the game is over."""
        return None if self.broken is not None else self.game.mover(self.state)

    def move(self, seat: int, turn: str) -> None:
        """Take a seat's turn, and those of seats that no model plays."""
        if action := read_action(turn, self.game.actions(self.state), self._free):
            self.state = (*self.state, action)
            self._move_others()
        else:
            self.broken = seat

    def worth(self, seat: int) -> float:
        """Return the outcome for a seat."""
        if self.broken is None:
            return self.game.worth(self.state)[seat]
        return self.game.least if seat == self.broken else -self.game.least / (self.game.seats - 1)

    def _move_others(self) -> None:
        mine = self.player(0)
        while self.fixed is not None and (mover := self.mover) is not None and mover != mine:
            chances = self.fixed[mover][knows(self.game, self.state, mover)]
            (action,) = self._random.choices(self.game.actions(self.state), chances)
            self.state = (*self.state, action)


class _View:
    """The view of the game from one seat."""

    def __init__(self, shared: _SharedGame, place: int) -> None:
        self._shared, self._place = shared, place
        self._read_length = 1
        """Length of the part of the state that it has read."""

    @property
    def _seat(self) -> int:
        return self._shared.player(self._place)

    def reset(self, seed: int) -> tuple[str, Info]:
        self._shared.begin(seed)
        self._read_length = 1
        hand = self._shared.game.dealt(self._shared.state[0], self._seat)
        result = self.news()
        if result is None:
            return hand, {"waits": True}
        return " ".join(part for part in (hand, result[0]) if part), result[4]

    def step(self, turn: str) -> EnvironmentAnswer | None:
        self._shared.move(self._seat, turn)
        self._read_length += 1
        return self.news()

    def news(self) -> EnvironmentAnswer | None:
        mover = self._shared.mover
        if mover is not None and mover != self._seat:
            return None
        text = " ".join(self._shared.state[self._read_length :])
        self._read_length = len(self._shared.state)
        if mover is None:
            outcome = self._shared.worth(self._seat)
            return text, outcome, True, False, {"solved": outcome > 0}
        game, state = self._shared.game, self._shared.state
        info: Info = {"state": " ".join(knows(game, state, self._seat)), "actions": game.actions(state)}
        return text, 0.0, False, False, info

    def close(self) -> None:
        return None
