"""Games of hidden roles in which a message is rewarded for the beliefs that it causes (paper 5, arXiv 2502.06060).

    a message      + speaking * change of the log-probability of the truth in the beliefs of the other innocent seats
                   - the same, if the guilty seat speaks
    a vote         + listening, if an innocent seat accuses the guilty one

These rewards are added to those of the game. Beliefs are those of the policy that plays all seats, scored by the engine
after each seat's own view as it receives the message (`models.agents.play.games.beliefs`). The paper trains listening
as a supervised loss, -log b; the reward of a vote that is drawn from b has the expectation b.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from typing import NamedTuple

from pydantic import NonNegativeFloat

from models.agents.environments.table import Table
from models.agents.play.games import GAMES
from models.agents.play.games.beliefs import HiddenRoles, beliefs_about, log_beliefs
from models.agents.play.games.game import State, known_state, read_action
from models.base.errors import UserError
from models.method.episode import Turn
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.rollouts.episodes import Chosen, Episodes


@part("believed")
class Believed(Episodes):
    """Episodes whose messages are rewarded for changes of beliefs. Set under `rollouts:`."""

    environment: Chosen = field(default_factory=lambda: Table(game="mole"))
    """A `table` with a game of hidden roles, whose problems state the deal."""
    speaking: NonNegativeFloat = 1.0
    """Reward per nat that a message adds to the others' belief in the truth."""
    listening: NonNegativeFloat = 1.0
    """Reward of a right accusation."""

    @property
    def misfit(self) -> str:
        """Reason to refuse an environment that has no guilty seat; empty if it has one."""
        if isinstance(self.environment, Table) and isinstance(GAMES[self.environment.game], HiddenRoles):
            return ""
        return "rollouts believed needs environment: {name: table} with a game of hidden roles, as mole"

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Play episodes and add those rewards to their turns, [prompts * seats * G].

        Raises:
            UserError: a problem does not state the deal.
        """
        assert isinstance(self.environment, Table)
        game = GAMES[self.environment.game]
        assert isinstance(game, HiddenRoles)
        for problem in problems:
            if problem.answer not in [deal for _, deal in game.deals()]:
                raise UserError(
                    f"rollouts believed: problem {problem.id}: the answer {problem.answer!r} is not a deal of "
                    f"{game.name}"
                )
        made = super().__call__(resources, problems, round_number)
        moves = [[self._moved(game, rollout.problem, turn) for turn in rollout.episode.turns] for rollout in made]
        read = [
            beliefs_about(game, rollout.problem.tokens, move.state, move.action) if move.speaks else []
            for rollout, row in zip(made, moves, strict=True)
            for move in row
        ]
        held = [belief for pairs in read for pair in pairs for belief in pair]
        known = log_beliefs(game, resources.sampler(), resources.codec, held, self.role)
        changes = iter([sum(known[after] - known[before] for before, after in pairs) for pairs in read])
        return [
            replace(rollout, episode=replace(rollout.episode, turns=tuple(self._rewarded(game, rollout, row, changes))))
            for rollout, row in zip(made, moves, strict=True)
        ]

    def _rewarded(
        self, game: HiddenRoles, rollout: Rollout, moves: Sequence[_Move], changes: Iterator[float]
    ) -> Iterator[Turn]:
        """Yield the turns of a rollout with the rewards of their moves added; each takes the next of `changes`."""
        for turn, move in zip(rollout.episode.turns, moves, strict=True):
            yield turn._replace(reward=turn.reward + self._worth(game, move, next(changes)))

    def _moved(self, game: HiddenRoles, problem: Problem, turn: Turn) -> _Move:
        assert isinstance(self.environment, Table)
        seat, state = known_state(game, problem.answer, turn.state)
        action = read_action(turn.text, game.actions(state), self.environment.free)
        return _Move(seat, state, action, bool(action) and action not in game.accusations(seat))

    def _worth(self, game: HiddenRoles, move: _Move, change: float) -> float:
        innocent = move.seat != game.guilty(move.state[0])
        if move.speaks:
            return self.speaking * (change if innocent else -change)
        accuses = bool(move.action) and game.accused(move.action) == game.guilty(move.state[0])
        return self.listening * float(innocent and accuses)


class _Move(NamedTuple):
    """A turn in terms of the game."""

    seat: int
    state: State
    """State before the turn."""
    action: str
    """Action of the turn; empty: the text is not an action."""
    speaks: bool
    """Whether the turn is a message, not an accusation."""
