"""Kuhn poker, played by one's own card alone: the prompt names the players, and each episode deals at random.

    ada and bob play kuhn poker    | second queen bet | call

A demonstration is the view of one seat: the environment speaks first. Players bet and call rarely with a jack and often
with a king, and do not bluff beyond that.
"""

from __future__ import annotations

from random import Random
from typing import ClassVar

from models.agents.play.games.kuhn_poker import KuhnPoker
from models.datasets.schema import SOUND
from models.task_sets.drawing import Task, TaskSettings

NAMES = (
    "ada",
    "bob",
    "cem",
    "dora",
    "eli",
    "fay",
    "gus",
    "hana",
    "ivo",
    "jun",
    "kai",
    "lea",
    "max",
    "nina",
    "olaf",
    "pia",
)
BOLD = {"jack": 0.25, "queen": 0.5, "king": 0.75}
"""Probability that a player bets, or calls, by card."""
_GAME = KuhnPoker()


class KuhnPokerSettings(TaskSettings):
    """The section `kuhn_poker` of params.yaml."""

    states_answer: ClassVar[bool] = False

    def draw(self, random: Random) -> Task:
        """Draw the two players."""
        first, second = random.sample(NAMES, 2)
        return Task(f"{first} and {second} play kuhn poker", "win", 1, ())

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Draw a game, seen from either seat."""
        seat = random.randrange(_GAME.seats)
        state: tuple[str, ...] = (random.choice(_GAME.deals())[1],)
        turns, heard = [""], [_GAME.dealt(state[0], seat)]
        while (mover := _GAME.mover(state)) is not None:
            timid, bold = _GAME.actions(state)
            action = bold if random.random() < BOLD[_GAME.dealt(state[0], mover).split()[1]] else timid
            state = (*state, action)
            if mover == seat:
                turns += [" ".join(heard), self._worded(random, action)]
                heard = []
            else:
                heard.append(action)
        return SOUND, tuple(turns)

    def _worded(self, random: Random, action: str) -> str:
        """Return the words for an action."""
        return action


SETTINGS = KuhnPokerSettings
