"""Beliefs about the guilty seat in a game of hidden roles, and how a message changes them (paper 5, arXiv 2502.06060).

    b(s, h)  = P(accusation of the guilty seat | tokens of seat s, h) / sum over all accusations that s can make
    change   = sum over the other innocent seats s of log b(s, h with the message) - log b(s, h)

A belief is read off the policy: the probability of each accusation if the seat were to accuse now. It takes no turn and
is not part of the episode.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from models.agents.play.games.game import Game, State
from models.agents.play.games.strategy import view
from models.engines.engine import Engine
from models.text.bridge import Role
from models.text.encoding import Codec


@runtime_checkable
class HiddenRoles(Game, Protocol):
    """A game in which one seat is guilty, and the others do not know which."""

    @abstractmethod
    def guilty(self, deal: str) -> int:
        """Return the guilty seat."""
        ...

    @abstractmethod
    def accusations(self, seat: int) -> tuple[str, ...]:
        """Return the actions by which a seat accuses another seat."""
        ...

    @abstractmethod
    def accused(self, accusation: str) -> int:
        """Return the seat that an accusation names."""
        ...


class SeatBelief(NamedTuple):
    """Seat and state of a belief, whose probability is computed by `log_beliefs`."""

    prompt: tuple[int, ...]
    seat: int
    state: State


def beliefs_about(
    game: HiddenRoles, prompt: Sequence[int], state: State, message: str
) -> list[tuple[SeatBelief, SeatBelief]]:
    """Return the beliefs before and after a message, of every innocent seat except the speaker, [listeners]."""
    speaker, guilty = game.mover(state), game.guilty(state[0])
    return [
        (SeatBelief(tuple(prompt), seat, state), SeatBelief(tuple(prompt), seat, (*state, message)))
        for seat in range(game.seats)
        if seat not in (speaker, guilty)
    ]


def log_beliefs(
    game: HiddenRoles, engine: Engine, codec: Codec, beliefs: Sequence[SeatBelief], role: Role = "user"
) -> dict[SeatBelief, float]:
    """Return the log-probability of the guilty seat in each belief, in nats; each belief is scored once."""
    distinct = list(dict.fromkeys(beliefs))
    prompts: list[tuple[int, ...]] = []
    accusations: list[list[int]] = []
    for belief in distinct:
        texts = game.accusations(belief.seat)
        history = (*belief.prompt, *view(game, codec, belief.state, belief.seat, role))
        prompts += [history] * len(texts)
        accusations += codec.completions(texts)
    scores = iter([math.fsum(row) for row in engine.score(prompts, accusations)] if prompts else [])
    log_probs: dict[SeatBelief, float] = {}
    for belief in distinct:
        seat_scores = {game.accused(text): next(scores) for text in game.accusations(belief.seat)}
        most = max(seat_scores.values())
        total = most + math.log(math.fsum(math.exp(score - most) for score in seat_scores.values()))
        log_probs[belief] = seat_scores[game.guilty(belief.state[0])] - total
    return log_probs
