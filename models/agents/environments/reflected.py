"""Two trials of a frozen actor, and between them a reflection by the policy (Retroformer; paper 50).

    actor       problem | turns of the first trial                       return R1
    policy      problem | the actor's turns and answers | reflection     reward R2 - R1
    actor       problem | reflection | turns of the second trial         return R2

The actor calls tools, as in `tools`. It is a frozen model, the policy that the run began with, and its words are not
trained on. The policy's reward is the change that its words cause: a reflection after which the actor succeeds after a
failure earns 1, one that spoils a success costs 1. An episode is solved if the second trial is.
"""

from __future__ import annotations

from collections.abc import Sequence

from models.agents.environments.tools import Tools
from models.answers.exact import is_right
from models.base.bounds import Positive
from models.method.environment import EnvironmentAnswer, EnvironmentEpisode, Info, Seat
from models.method.episode import Turn, transcript
from models.method.problem import Problem
from models.method.registry import part


@part("reflected")
class Reflected(Tools):
    """Reflections on a frozen actor's trials."""

    needs_answers = True
    several = True
    asks_frozen = True
    trial_turns: Positive = 3
    """Turns of the actor in a trial."""

    def seats(self, problem: Problem) -> Sequence[Seat]:
        """Return the seats of the policy, and of the actor in both trials."""
        first, second = (
            _Trial(self.open(problem), problem, self.trial_turns),
            _Trial(self.open(problem), problem, self.trial_turns, begins=False),
        )
        actors = [Seat(trial, speaker="frozen", learns=False) for trial in (first, second)]
        return [Seat(_Reflecting(first, second)), *actors]


class _Trial:
    """A trial of the actor, as the actor sees it."""

    def __init__(self, inner: EnvironmentEpisode, problem: Problem, max_turns: int, begins: bool = True) -> None:
        self._inner, self._answer, self._max_turns = inner, problem.answer, max_turns
        self._begins, self._opening = begins, ""
        self.advice: str | None = None
        self.turns: list[Turn] = []
        self.over = False

    @property
    def earned(self) -> float:
        """Return of the trial: one if it ended in the right answer, else zero."""
        return float(is_right("\n".join(turn.text for turn in self.turns), self._answer, finished=self.over))

    def reset(self, seed: int) -> tuple[str, Info]:
        self._opening, info = self._inner.reset(seed)
        return ("", {"waits": True}) if not self._begins else (self._opening, info)

    def step(self, turn: str) -> EnvironmentAnswer | None:
        response, reward, terminated, truncated, info = self._inner.step(turn)
        self.turns.append(Turn(len(self.turns), len(self.turns) + 1, text=turn, response=response))
        self.over = terminated or truncated or len(self.turns) == self._max_turns
        return response, reward, self.over, False, info

    def news(self) -> EnvironmentAnswer | None:
        if self.advice is None:
            return None
        return "\n".join(text for text in (self._opening, self.advice) if text), 0.0, False, False, {}

    def close(self) -> None:
        self._inner.close()


class _Reflecting:
    """Both trials as the policy sees them."""

    def __init__(self, first: _Trial, second: _Trial) -> None:
        self._first, self._second = first, second

    def reset(self, seed: int) -> tuple[str, Info]:
        return "", {"waits": True}

    def step(self, turn: str) -> EnvironmentAnswer | None:
        self._second.advice = turn
        return None

    def news(self) -> EnvironmentAnswer | None:
        if self._second.advice is None:
            trial_text = transcript(self._first.turns) or "".join(turn.text for turn in self._first.turns)
            return (trial_text, 0.0, False, False, {}) if self._first.over else None
        if not self._second.over:
            return None
        change = self._second.earned - self._first.earned
        return "", change, True, False, {"solved": self._second.earned > 0}

    def close(self) -> None:
        return None
