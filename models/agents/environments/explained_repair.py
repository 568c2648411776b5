"""A wrong program is explained and then written again, and each has a reward of its own (self-debugging; paper 87).

    a function in words, and a program      turn 1: what is wrong with it       reward: likeness to the answer
    fix:                                    turn 2: the repaired program        reward: 1 if it passes its tests

The problem's answer is an explanation; its tests are those of the program, which runs in the sandbox. The reward of the
second turn depends on the first only through what the policy reads: an advantage that counts a turn's own reward
(`turn_returns` with gamma 0) keeps a lucky repair from rewarding a wrong explanation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import ClassVar

from models.answers.likeness import Metric, likeness
from models.base.errors import UserError
from models.method.attempt import Attempt
from models.method.environment import Environment, EnvironmentEpisode, Info
from models.method.problem import Problem
from models.method.registry import part
from models.sandbox.settings import SandboxSettings
from models.sandbox.shared import shared_sandbox
from models.sandbox.written import program_of


@part("explained_repair")
class ExplainedRepair(Environment):
    """An explanation of a wrong program, and then its repair."""

    needs_answers = True
    renamed: ClassVar[Mapping[str, str]] = {"says": "follow_up"}
    follow_up: str = "fix:"
    """Text that the policy reads after its explanation."""
    metric: Metric = "rouge_l"
    """Metric that compares an explanation with the problem's."""
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    """Limits of the sandbox in which programs run."""

    def try_out(self) -> None:
        """Raise a UserError if this machine cannot run programs in the sandbox."""
        _ = shared_sandbox(self.sandbox).layers

    def open(self, problem: Problem) -> EnvironmentEpisode:
        """Open an episode about a problem that has tests.

        Raises:
            UserError: it has none.
        """
        if not problem.tests.strip():
            raise UserError(f"environment explained_repair: the problem {problem.id} has no tests")
        return _Repair(problem, self)


class _Repair:
    def __init__(self, problem: Problem, settings: ExplainedRepair) -> None:
        # A repair is a complete program and does not continue the prompt.
        self._problem, self._settings = replace(problem, prompt=""), settings
        self._explained = False

    def reset(self, seed: int) -> tuple[str, Info]:
        self._explained = False
        return "", {}

    def step(self, turn: str) -> tuple[str, float, bool, bool, Info]:
        if not self._explained:
            self._explained = True
            score = likeness(turn, self._problem.answer, self._settings.metric)
            return self._settings.follow_up, score, False, False, {}
        program = program_of(Attempt(self._problem, turn, True))
        assert program is not None, "the problem has tests, and the turn has ended"
        (verdict,) = shared_sandbox(self._settings.sandbox).judge([program])
        right = verdict.outcome == "passed"
        return "", float(right), True, False, {"solved": right}

    def close(self) -> None:
        return None
