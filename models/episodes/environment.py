"""What answers the policy's turns: Gymnasium's protocol over text, and the part of a recipe that opens it.

    text, info = opened.reset(seed)                                  what the policy reads behind the prompt, if any
    text, reward, terminated, truncated, info = opened.step(turn)    what it reads next

An environment of Gymnasium (https://gymnasium.farama.org) whose observations and actions are text is taken as it is.
`info` may say more, all of it optional:

    state    what the next turn is taken in, as text: equal states are compared with one another (advantage anchored)
    actions  all texts that are admitted as the next turn, where they can be listed (strategy masked_actions)
    solved   whether the episode reached its goal, once it is over; else the verifier reads what the policy said
    duration what the turn's action takes, in seconds that do not hang on the machine (advantage turn_returns)
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from models.engine.engine import Engine, Sampling
from models.episodes.episode import Episode
from models.episodes.limits import EpisodeLimits
from models.loop.rollout import Problem
from models.parts import Part
from models.text.encoding import Codec

Info = dict[str, Any]


class Opened(Protocol):
    """One episode of an environment."""

    def reset(self, seed: int) -> tuple[str, Info]:
        """Begin; chance in the episode goes by `seed`, in [0, 2^63). Returns what the policy reads behind the prompt,
        empty where the prompt says all, and what there is to know."""
        ...

    def step(self, turn: str) -> tuple[str, float, bool, bool, Info]:
        """Take the policy's turn. Returns what it reads next, the turn's reward, whether the episode is over, whether
        it was broken off, and what there is to know."""
        ...

    def close(self) -> None:
        """Let go of what it holds; called once for each episode that was opened."""
        ...


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

    @abstractmethod
    def open(self, problem: Problem) -> Opened:
        """An episode about `problem`, whose prompt the policy reads first.

        Raises:
            UserError: the problem is none of this environment's.
        """
