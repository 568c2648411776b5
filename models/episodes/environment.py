"""What answers the policy's turns: Gymnasium's protocol over text, and the part of a recipe that opens it.

    text, info = opened.reset(seed)                                  what the policy reads behind the prompt, if any
    text, reward, terminated, truncated, info = opened.step(turn)    what it reads next

An environment of Gymnasium (https://gymnasium.farama.org) whose observations and actions are text is taken as it is.
`info` may say more, all of it optional:

    state    what the next turn is taken in, as text: equal states are compared with one another (advantage anchored)
    actions  all texts that are admitted as the next turn, where they can be listed (strategy masked_actions)
    solved   whether the episode reached its goal, once it is over; else the verifier reads what the policy said
    duration what the turn's action takes, in seconds that do not hang on the machine (advantage turn_returns)

Where several play, each has a seat: a view of its own, in tokens of its own, and who speaks for it. A seat that is not
to move yet is asked for its news after every wave:

    info["waits"]    of a reset: others move first
    step(turn)       None: others move first
    news()           what the seat hears once it is to move, or the episode is over; None: still not
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from models.engine.engine import Engine, Sampling
from models.episodes.episode import Episode
from models.episodes.limits import EpisodeLimits
from models.loop.rollout import Problem
from models.loop.turn import Turn
from models.parts import Part
from models.text.encoding import Codec

Info = dict[str, Any]
Heard = tuple[str, float, bool, bool, Info]
"""Text, reward, terminated, truncated, info."""


class Opened(Protocol):
    """One episode of an environment."""

    def reset(self, seed: int) -> tuple[str, Info]:
        """Begin; chance in the episode goes by `seed`, in [0, 2^63). Returns what the policy reads behind the prompt,
        empty where the prompt says all, and what there is to know."""
        ...

    def step(self, turn: str) -> Heard:
        """Take the policy's turn. Returns what it reads next, the turn's reward, whether the episode is over, whether
        it was broken off, and what there is to know."""
        ...

    def close(self) -> None:
        """Let go of what it holds; called once for each episode that was opened."""
        ...


class View(Protocol):
    """An episode of several as it looks from a seat."""

    def reset(self, seed: int) -> tuple[str, Info]:
        """As `Opened.reset`; all seats of an episode are given the same seed."""
        ...

    def step(self, turn: str) -> Heard | None:
        """As `Opened.step`; None: others move first, and then `news` says what came of it."""
        ...

    def news(self) -> Heard | None:
        """What the seat hears before it is to move, or as the episode is over; None: others move first."""
        ...

    def close(self) -> None:
        """As `Opened.close`."""
        ...


Speaker = Literal["policy", "frozen"]
"""Who speaks for a seat: the policy as it is trained or measured, or a model that stays as it is."""


@dataclass(frozen=True, eq=False)
class Seat:
    """A place at an episode. What is said there is drawn in waves, beside all others of the round."""

    opened: Opened | View
    speaker: Speaker = "policy"
    learns: bool = True
    """Whether its turns are a rollout that the policy is trained on."""
    prompt: str | None = None
    """What it reads first; None: the problem's prompt."""
    forgets: bool = False
    """Whether it reads what it hears behind its prompt alone, and nothing of what was before."""

    def __post_init__(self) -> None:
        if self.learns and (self.speaker != "policy" or self.forgets):
            raise ValueError("a seat that learns is the policy's and reads its whole episode")


class Environment(Part):
    """What the policy's turns are answered by. Stands under `rollouts.environment:`."""

    slot = "environment"

    @property
    def needs_answers(self) -> bool:
        """Whether it reads the problems' answers."""
        return False

    @property
    def at_once(self) -> bool:
        """Whether its episodes may be asked beside one another, each in a thread of its own (`rollouts.waves`)."""
        return True

    def in_round(self, number: int) -> Environment:
        """The environment as it is in a round of training, where it changes with time; evaluations take it as it
        stands."""
        return self

    def drive(
        self, engine: Engine, codec: Codec, limits: EpisodeLimits, problems: Sequence[Problem], sampling: Sampling,
        seed: int,
    ) -> list[list[Episode]] | None:  # fmt: skip
        """Episodes as `models.episodes.play.play` gives them, where the environment asks the policy by itself; None:
        it answers the policy's turns."""
        return None

    @property
    def learning(self) -> int:
        """Seats of an episode that learn; each gives a rollout of its own, in a group of its own."""
        return 1

    @property
    def several(self) -> bool:
        """Whether an episode has more seats than the policy's."""
        return False

    @property
    def asks_frozen(self) -> bool:
        """Whether a model that stays as it is speaks for one of them."""
        return False

    @property
    def frozen(self) -> Path | None:
        """Folder of the model that speaks for frozen seats; None: the policy that the run began with."""
        return None

    def beside(self, partner: Path) -> Environment | None:
        """What evaluations play where the model in the folder `partner` speaks for the seats of others; None: there are
        none (strategy cross_play)."""
        return None

    @property
    def measured(self) -> Environment:
        """What evaluations play, with one seat that learns."""
        return self

    def seats(self, problem: Problem) -> Sequence[Seat]:
        """The seats of an episode about `problem`; by default the policy's alone.

        Raises:
            UserError: the problem is none of this environment's.
        """
        return (Seat(self.open(problem)),)

    @abstractmethod
    def open(self, problem: Problem) -> Opened:
        """An episode about `problem`, whose prompt the policy reads first.

        Raises:
            UserError: the problem is none of this environment's.
        """

    def reached(self, problem: Problem, turns: Sequence[Turn]) -> Problem | None:
        """Another problem that an episode about `problem` solves, with its prompt as text; None: it solves none, or
        nobody knows. Whether it does is verified by whoever asks (rollouts relabelled)."""
        return None
