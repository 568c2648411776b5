"""The mole game for three players, played after the deal: the players are in the prompt, the deal is the answer.

    ada , bob and cem look for the mole    | blue saw red | saw red | pass saw red | vote red

A demonstration is the view of one seat: the environment speaks first. The witness names the mole and votes for it. The
mole names another seat or passes, and votes at random. The third seat passes; it then votes for the seat that named it,
otherwise for a seat that was named, otherwise at random. The flaw of demonstrations: `careless`, a player whose
messages and votes are random.
"""

from __future__ import annotations

from random import Random
from typing import ClassVar

from models.agents.play.games.game import State
from models.agents.play.games.mole import PASS, SEATS, Mole
from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task, TaskSettings
from models.task_sets.kuhn_poker import NAMES

_GAME = Mole()


class MoleSettings(TaskSettings):
    """The section `mole` of params.yaml."""

    states_answer: ClassVar[bool] = False
    careless: Share
    """Share of the demonstrations whose player sends random messages and votes at random."""

    def draw(self, random: Random) -> Task:
        """Draw three players and their deal."""
        first, second, third = random.sample(NAMES, 3)
        return Task(f"{first} , {second} and {third} look for the mole", random.choice(_GAME.deals())[1], 1, ())

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Return a game as one seat sees it, drawn at random."""
        seat, careless = random.randrange(_GAME.seats), random.random() < self.careless
        state: State = (task.answer,)
        turns, heard = [""], [_GAME.dealt(task.answer, seat)]
        while (mover := _GAME.mover(state)) is not None:
            sure = careless and mover == seat
            action = random.choice(_GAME.actions(state)) if sure else _sensible(state, mover, random)
            state = (*state, action)
            if mover == seat:
                turns += [" ".join(heard), action]
                heard = []
            else:
                heard.append(action)
        return "careless" if careless else SOUND, tuple(turns)


def _sensible(state: State, seat: int, random: Random) -> str:
    """Return a sensible action for the role of a seat."""
    *_, seen = words = _GAME.dealt(state[0], seat).split()
    actions = _GAME.actions(state)
    if len(words) == 3:
        return next(action for action in actions if action.endswith(seen))
    if seen == "mole":
        return random.choice(actions)
    if len(state) <= _GAME.seats:
        return PASS
    said = dict(zip(SEATS, state[1:], strict=False))
    liars = [name for name in SEATS if said[name] == f"saw {SEATS[seat]}"]
    accused = [words.split()[1] for words in said.values() if words != PASS and not words.endswith(SEATS[seat])]
    likely = [f"vote {name}" for name in liars or accused if name != SEATS[seat]]
    return random.choice(likely or actions)


SETTINGS = MoleSettings
