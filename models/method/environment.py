"""The environment that answers the policy's turns: Gymnasium's protocol over text, and the recipe part that opens it.

    text, info = opened.reset(seed)                                  what the policy reads after the prompt, if any
    text, reward, terminated, truncated, info = opened.step(turn)    what it reads next

An environment of Gymnasium (https://gymnasium.farama.org) whose observations and actions are text works without
changes. `info` may hold more, all of it optional:

    state    state in which the next turn is taken, as text: equal states are compared (advantage anchored)
    actions  all texts that are allowed as the next turn, if they can be listed (strategy masked_actions)
    solved   whether the episode reached its goal, once it is over; else the verifier reads the policy's turns
    duration duration of the turn's action in seconds, independent of the machine (advantage turn_returns)
    correction   right text of the next turn, if the environment knows it (rollouts corrected)

In an environment with several players each player has a seat: its own view, its own tokens, and a model that speaks for
it. A seat that is not to move yet is polled for news after every wave:

    info["waits"]    of a reset: others move first
    step(turn)       None: others move first
    news()           what the seat reads once it is to move, or the episode is over; None: still not
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from models.engines.engine import Engine, Sampling
from models.method.episode import Episode, EpisodeLimits, Turn
from models.method.problem import Problem
from models.method.registry import Part
from models.text.bridge import Role
from models.text.encoding import Codec

Info = dict[str, Any]
EnvironmentAnswer = tuple[str, float, bool, bool, Info]
"""Result of a step, as in Gymnasium: text, reward, terminated, truncated, info."""


class EnvironmentEpisode(Protocol):
    """One episode of an environment."""

    def reset(self, seed: int) -> tuple[str, Info]:
        """Begin the episode; its randomness is seeded with `seed`, in [0, 2^63). Returns the text that the policy reads
        after the prompt, empty if the prompt is complete, and the info."""
        ...

    def step(self, turn: str) -> EnvironmentAnswer:
        """Take the policy's turn. Returns the text that it reads next, the turn's reward, whether the episode is over,
        whether it was truncated, and the info."""
        ...

    def close(self) -> None:
        """Release all resources; called once for each episode that was opened."""
        ...


class View(Protocol):
    """The episode as one of several seats (players) sees it."""

    def reset(self, seed: int) -> tuple[str, Info]:
        """Begin as in `EnvironmentEpisode.reset`; all seats of an episode get the same seed."""
        ...

    def step(self, turn: str) -> EnvironmentAnswer | None:
        """Take a turn as in `EnvironmentEpisode.step`; None: others move first, and `news` gives the result later."""
        ...

    def news(self) -> EnvironmentAnswer | None:
        """Return the step result that the seat reads before its next turn, or at the end; None: others move first."""
        ...

    def close(self) -> None:
        """Release all resources as in `EnvironmentEpisode.close`."""
        ...


Speaker = Literal["policy", "frozen"]
"""The model that speaks for a seat: the policy that is trained or measured, or a frozen model."""


@dataclass(frozen=True, eq=False)
class Seat:
    """A player's place in an episode. Its turns are generated in waves, together with all others of the round."""

    opened: EnvironmentEpisode | View
    speaker: Speaker = "policy"
    learns: bool = True
    """Whether the policy is trained on its turns, which form one rollout."""
    prompt: str | None = None
    """The prompt of the seat; None: the problem's prompt."""
    forgets: bool = False
    """Whether it reads only its prompt and the latest text, without any earlier history."""
    prompted: bool = False
    """Whether each text that it reads becomes its whole prompt, encoded like one of the data."""
    answers: bool = False
    """Whether it answers like in an evaluation of its model: what it reads beyond the problem's prompt counts towards
    the episode's tokens, the limit of a turn does not apply, and an answer that did not end is empty."""

    def __post_init__(self) -> None:
        if self.learns and (self.speaker != "policy" or self.forgets or self.prompted):
            raise ValueError("a seat that learns is the policy's and reads its whole episode")
        if self.learns and self.answers:
            raise ValueError("the answer of a seat that learns is its own episode")


class Environment(Part):
    """Base class of environments, which answer the policy's turns. Set under `rollouts.environment:`."""

    slot = "environment"

    @property
    def needs_answers(self) -> bool:
        """Whether it reads the problems' answers."""
        return False

    @property
    def at_once(self) -> bool:
        """Whether its episodes may be stepped concurrently, each in its own thread (`rollouts.waves`)."""
        return True

    def in_round(self, number: int) -> Environment:
        """Return the environment for a round of training, if it changes with time; evaluations use it unchanged."""
        return self

    def drive(
        self, engine: Engine, codec: Codec, limits: EpisodeLimits, problems: Sequence[Problem], sampling: Sampling,
        seed: int,
    ) -> list[list[Episode]] | None:  # fmt: skip
        """Play whole episodes, for an environment that calls the policy itself, such as an agent program.

        Returns the same as `models.agents.play.play.play`. None: the environment only answers the policy's turns.
        """
        return None

    @property
    def learning(self) -> int:
        """Number of seats that learn in an episode; each gives its own rollout, and belongs to its own group."""
        return 1

    @property
    def several(self) -> bool:
        """Whether an episode has seats other than the policy's."""
        return False

    @property
    def asks_frozen(self) -> bool:
        """Whether a frozen model speaks for one of the seats."""
        return False

    @property
    def frozen(self) -> Path | None:
        """Folder of the model that speaks for frozen seats; None: the policy that the run began with."""
        return None

    def with_partner(self, partner: Path) -> Environment | None:
        """Return the environment for evaluations in which the model in the folder `partner` plays the other seats.

        None: it has only the policy's seat. The strategy cross_play uses this.
        """
        return None

    @property
    def measured(self) -> Environment:
        """The environment that evaluations use instead, in which only one seat learns."""
        return self

    def seats(self, problem: Problem) -> Sequence[Seat]:
        """Open an episode about `problem` and return its seats; by default only the policy's.

        Raises:
            UserError: the problem does not belong to this environment.
        """
        return (Seat(self.open(problem)),)

    @abstractmethod
    def open(self, problem: Problem) -> EnvironmentEpisode:
        """Open an episode about `problem`, whose prompt the policy reads first.

        Raises:
            UserError: the problem does not belong to this environment.
        """

    @property
    def most_lessons(self) -> int:
        """Largest number of further demonstrations that `lessons` makes of a demonstration; 0: none."""
        return 0

    def lessons(self, name: str, prompt: str, solution: str, right: bool) -> Sequence[tuple[str, str]]:
        """Return demonstrations of this environment, made from a demonstration of a problem, for the warm start.

        Args:
            name: id of the demonstration; equal ids give equal results.
            prompt: prompt of the problem.
            solution: the demonstration.
            right: whether it is right.

        Returns:
            Prompt and completion of each; the turns of a completion are separated as in all demonstrations.
        """
        return ()

    def reached(self, problem: Problem, turns: Sequence[Turn]) -> Problem | None:
        """Return another problem that an episode about `problem` happens to solve, with its prompt as text.

        None: it solves none, or this is unknown. The caller verifies the solution (rollouts relabelled).
        """
        return None


@dataclass(frozen=True, kw_only=True)
class EpisodeSettings:
    """Environment of the episodes, their limits, and how they are generated."""

    environment: Environment
    limits: EpisodeLimits
    role: Role
    """Role of the environment in a chat template."""
    waves: bool = True
    """Whether all episodes take their turns together; else each continues as soon as its own answer is complete."""
