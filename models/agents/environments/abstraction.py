"""One seat writes an abstraction of a problem, another solves the problem under it (RLAD, paper 268, arXiv 2510.02263).

    writer      problem | abstraction                        reward: success with it, less success without it
    solver      problem | Hint: abstraction | solution       reward: whether the solution is right
    baseline    problem | solution                           not trained on

With `hides_pictures`, the solver and the baseline read the problem without its pictures. The abstraction is then all
that they know of them (the summary of SUM, which APM acts on; paper 61, arXiv 2306.05696).

Both seats are the policy's and learn. With several solutions, success is their mean, with the abstraction and without.
The writer is thus paid for what its words change: an abstraction after which the solver succeeds as often as before
earns nothing. Evaluations measure the solver under an abstraction. An episode is solved if the first solution is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Annotated, Literal

from pydantic import Field

from models.agents.play.preparation import check_form, filled, gives_away, steps_of
from models.answers.exact import is_right
from models.base.bounds import Positive
from models.base.errors import UserError
from models.base.images import without_images
from models.datasets.schema import TURNS
from models.method.environment import Environment, EnvironmentAnswer, Info, Seat
from models.method.problem import Problem
from models.method.registry import part

KEY = "rollouts.environment"


@part("abstraction")
class Abstraction(Environment):
    """Abstractions by one seat, and solutions under them by another."""

    several = True
    needs_answers = True
    learns: Literal["both", "writer", "solver"] = "both"
    """Seats that learn: the writer's, the solver's, or both."""
    solutions: Annotated[int, Field(ge=1, le=16)] = 1
    """Solutions with the abstraction, each a seat of its own, and as many without it."""
    baseline: bool = True
    """Whether success without the abstraction is subtracted from the writer's reward."""
    asks: str = ""
    """Text that the writer reads after the problem; empty: nothing."""
    gives: str = "Hint: {prepared}"
    """Text that the solver reads after the problem; `{prepared}` is the abstraction."""
    leaks: bool = True
    """Whether an abstraction may contain the answer; false: the writer then earns minus one, and the solver reads the
    problem alone."""
    hides_pictures: bool = False
    """Whether the solver reads the problem without its pictures. In the warm start it then writes only what follows the
    abstraction."""
    taught: bool = False
    """Whether the warm start also shows how to write an abstraction and how to use it, made from the right
    demonstrations: it is the beginning of the solution."""
    steps: Positive = 1
    """Number of steps of a solution that make an abstraction in the warm start."""
    between: str = "\n"
    """Text that separates the steps of a solution."""

    def __post_init__(self) -> None:
        check_form(self.gives, ("prepared",), f"{KEY}.gives")
        if not self.between:
            raise UserError(f"{KEY}.between is empty; set the text between the steps of a solution")

    @property
    def learning(self) -> int:
        """Number of seats that learn."""
        return (self.learns != "solver") + self.solutions * (self.learns != "writer")

    @property
    def measured(self) -> Abstraction:
        """The environment of evaluations, in which one solution under an abstraction is measured."""
        learns: Literal["writer", "solver"] = "writer" if self.learns == "writer" else "solver"
        return replace(self, learns=learns, solutions=1, baseline=False)

    def seats(self, problem: Problem) -> Sequence[Seat]:
        """Return the seats of the writer, of the solutions under its abstraction, and of those without it.

        Raises:
            UserError: the problem has no answer.
        """
        if not problem.answer.strip():
            raise UserError(f"problem {problem.id}: it has no answer; environment abstraction needs one")
        work = _Work(self, problem)
        writer = Seat(_WriterView(work), learns=self.learns != "solver")
        prompt = self._of_solver(problem.prompt)
        solvers = [
            Seat(
                _SolverView(work, number),
                learns=self.learns != "writer",
                answers=self.learns == "writer",
                prompt=prompt,
            )
            for number in range(self.solutions)
        ]
        alone = [
            Seat(_BaselineView(work), learns=False, prompted=True, answers=True)
            for _ in range(self.solutions if self.baseline else 0)
        ]
        return [writer, *solvers, *alone]

    def open(self, problem: Problem) -> _WriterView:  # type: ignore[override]
        """Raise an error, because an episode has several seats.

        Raises:
            UserError: always.
        """
        raise UserError("environment abstraction: its episodes have several seats")

    @property
    def most_lessons(self) -> int:
        """Two lessons of a demonstration: of the writer and of the solver."""
        return 2 if self.taught else 0

    def lessons(self, name: str, prompt: str, solution: str, right: bool) -> Sequence[tuple[str, str]]:
        """Return a demonstration of writing an abstraction, and that of solving under it."""
        steps = [] if TURNS in solution else steps_of(solution, self.between)[: self.steps]
        if not steps or not right or not self.taught:
            return ()
        text = self.between.join(steps)
        opening = f"{TURNS}{self.asks}{TURNS}" if self.asks else ""
        written = solution.strip().removeprefix(text).strip() if self.hides_pictures else solution
        read = self._of_solver(prompt)
        return (prompt, f"{opening}{text}"), (read, f"{TURNS}{self._given(text)}{TURNS}{written}")

    def _of_solver(self, prompt: str) -> str:
        """Return the solver's prompt."""
        return without_images(prompt) if self.hides_pictures else prompt

    def _given(self, abstraction: str) -> str:
        """Return the text that the solver reads after the problem; empty for an empty abstraction."""
        return filled(self.gives, {"prepared": abstraction}) if abstraction else ""


class _Work:
    """An abstraction and the solutions with it and without it, shared by all seats of an episode."""

    def __init__(self, settings: Abstraction, problem: Problem) -> None:
        self.settings, self.problem = settings, problem
        self.abstraction: str | None = None
        self.leaked = False
        self.right: dict[int, bool] = {}
        """Whether each solution under the abstraction is right, by its seat."""
        self.alone: list[bool] = []
        """Whether each solution without it is right."""

    def begin(self) -> None:
        """Begin the episode; all seats call it."""
        self.abstraction, self.leaked, self.right, self.alone = None, False, {}, []

    def write(self, turn: str) -> None:
        """Take the abstraction."""
        self.leaked = not self.settings.leaks and gives_away(turn, self.problem.answer)
        self.abstraction = "" if self.leaked else turn.strip()

    def is_right(self, turn: str) -> bool:
        """Return whether a solution is right."""
        return is_right(turn, self.problem.answer, finished=True)

    @property
    def reward(self) -> float | None:
        """Reward of the writer; None until all solutions are there."""
        settings = self.settings
        if len(self.right) < settings.solutions or len(self.alone) < settings.solutions * settings.baseline:
            return None
        if self.leaked:
            return -1.0
        return fmean(self.right.values()) - (fmean(self.alone) if self.alone else 0.0)


class _WriterView:
    """The writer's view."""

    def __init__(self, work: _Work) -> None:
        self._work = work

    def reset(self, seed: int) -> tuple[str, Info]:
        self._work.begin()
        return self._work.settings.asks, {}

    def step(self, turn: str) -> EnvironmentAnswer | None:
        self._work.write(turn)
        return None

    def news(self) -> EnvironmentAnswer | None:
        reward = self._work.reward
        if reward is None:
            return None
        return "", reward, True, False, {"solved": self._work.right[0]}

    def close(self) -> None:
        return None


class _SolverView:
    """The view of a solution under the abstraction."""

    def __init__(self, work: _Work, number: int) -> None:
        self._work, self._number = work, number
        self._reads = True

    def reset(self, seed: int) -> tuple[str, Info]:
        self._reads = True
        return "", {"waits": True}

    def step(self, turn: str) -> EnvironmentAnswer | None:
        right = self._work.is_right(turn)
        self._work.right[self._number] = right
        return "", float(right), True, False, {"solved": right}

    def news(self) -> EnvironmentAnswer | None:
        if self._work.abstraction is None or not self._reads:
            return None
        self._reads = False
        return self._work.settings._given(self._work.abstraction), 0.0, False, False, {}

    def close(self) -> None:
        return None


class _BaselineView:
    """The view of a solution without the abstraction."""

    def __init__(self, work: _Work) -> None:
        self._work = work

    def reset(self, seed: int) -> tuple[str, Info]:
        return self._work.settings._of_solver(self._work.problem.prompt), {}

    def step(self, turn: str) -> EnvironmentAnswer | None:
        self._work.alone.append(self._work.is_right(turn))
        return "", 0.0, True, False, {}

    def news(self) -> EnvironmentAnswer | None:
        return None

    def close(self) -> None:
        return None
