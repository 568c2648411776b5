"""Whom seats take for the guilty one in a game of hidden roles, and what a message changes of that (paper 5, arXiv
2502.06060).

    b(s, h)  = P(accusation of the guilty one | what seat s has read and said, h) over the sum of its accusations
    change   = sum over the other innocent seats s of log b(s, h with the message) - log b(s, h)

A belief is read off the policy: how likely it would accuse whom if it were to do so now. It costs no turn, and is no
part of the episode.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from models.engine.engine import Engine
from models.episodes.games.game import Game, State
from models.episodes.games.strategy import view
from models.text.bridge import Role
from models.text.encoding import Codec


@runtime_checkable
class HiddenRoles(Game, Protocol):
    """A game in which somebody is guilty, and the others do not know who."""

    @abstractmethod
    def guilty(self, deal: str) -> int:
        """The guilty seat."""
        ...

    @abstractmethod
    def accusations(self, seat: int) -> tuple[str, ...]:
        """The actions by which a seat names whom it takes for guilty."""
        ...

    @abstractmethod
    def accused(self, accusation: str) -> int:
        """The seat that an accusation names."""
        ...


class Held(NamedTuple):
    """A belief that somebody holds."""

    prompt: tuple[int, ...]
    seat: int
    state: State


def beliefs_about(game: HiddenRoles, prompt: Sequence[int], state: State, message: str) -> list[tuple[Held, Held]]:
    """Beliefs before and after a message, of every innocent seat but the speaker's, [listeners]."""
    speaker, guilty = game.mover(state), game.guilty(state[0])
    return [
        (Held(tuple(prompt), seat, state), Held(tuple(prompt), seat, (*state, message)))
        for seat in range(game.seats)
        if seat not in (speaker, guilty)
    ]


def log_beliefs(
    game: HiddenRoles, engine: Engine, codec: Codec, held: Sequence[Held], role: Role = "user"
) -> dict[Held, float]:
    """Log-probability of the guilty one in each belief, in nats, each asked for once."""
    asked = list(dict.fromkeys(held))
    prompts: list[tuple[int, ...]] = []
    accusations: list[list[int]] = []
    for belief in asked:
        texts = game.accusations(belief.seat)
        read = (*belief.prompt, *view(game, codec, belief.state, belief.seat, role))
        prompts += [read] * len(texts)
        accusations += codec.completions(texts)
    scores = iter([math.fsum(row) for row in engine.score(prompts, accusations)] if prompts else [])
    known: dict[Held, float] = {}
    for belief in asked:
        of_seat = {game.accused(text): next(scores) for text in game.accusations(belief.seat)}
        most = max(of_seat.values())
        total = most + math.log(math.fsum(math.exp(score - most) for score in of_seat.values()))
        known[belief] = of_seat[game.guilty(belief.state[0])] - total
    return known
