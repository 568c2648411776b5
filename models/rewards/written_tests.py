"""What tests are worth that the policy writes for a described function (PyTester, paper 25, arXiv 2401.07576).

    syntax      1 of what is Python
    runs        1 where the reference answers to it
    passes      1 where the reference passes every case
    covers      share of the reference's lines that are reached, where it passes
    kills       share of the reference's mutants that fail, where it passes

A recipe names the part once for each that it wants; their weights are the sum's. The first three alone are content with
`assert f(1) == f(1)`, which passes whatever is tested: mutants, programs that differ from the reference in one place,
tell such tests from good ones. Those count that the problem's own tests tell from the reference. The reference is the
problem's answer: the whole function. All of it runs in the sandbox (`models.sandbox.strength`). Right, in evaluations
and at the gate too, are tests that the reference passes and no such mutant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from models.loop.attempt import Attempt
from models.loop.rollout import Rollout
from models.loop.slots import Reward
from models.loop.world import World
from models.parts import part
from models.sandbox.sandbox import shared_sandbox
from models.sandbox.settings import SandboxSettings
from models.sandbox.strength import Asked, Strength, Subject, kills, strengths
from models.sandbox.written import written_code


@part("written_tests")
class WrittenTests(Reward):
    """Syntax, running, passing, coverage or kills of tests; zero of a completion that was cut."""

    needs_answers = True
    needs_tests = True
    asks: Literal["syntax", "runs", "passes", "covers", "kills"] = "kills"
    """Which."""
    mutants: Annotated[int, Field(ge=1, le=1000)] = 8
    """Most mutants of a reference, taken evenly from all."""
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    """What one run of tests may use."""

    @property
    def verifies(self) -> bool:
        """Tests that kill all mutants decide in evaluations and at the gate too."""
        return self.asks == "kills"

    def try_out(self) -> None:
        """Raise a UserError where this machine cannot hold a program."""
        _ = shared_sandbox(self.sandbox).layers

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """Values in [0, 1], [completions]."""
        return torch.tensor(self._values([Attempt.of(each) for each in rollouts]))

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Which attempts are tests that the reference passes and no mutant, [attempts]."""
        return [value == 1.0 for value in self._values(attempts)]

    def _values(self, attempts: Sequence[Attempt]) -> list[float]:
        """Of each attempt, [attempts]; equal tests are run once."""
        asked = [_asked(attempt) for attempt in attempts]
        different = tuple(dict.fromkeys(each for each in asked if each is not None))
        if self.asks == "kills":
            known = kills(self.sandbox, self.mutants, different)
        else:
            known = {each: self._value(seen) for each, seen in strengths(self.sandbox, different).items()}
        return [0.0 if each is None else known[each] for each in asked]

    def _value(self, seen: Strength) -> float:
        match self.asks:
            case "syntax":
                return float(seen.parses)
            case "runs":
                return float(seen.runs)
            case "passes":
                return float(seen.passes)
        return seen.covered


def _asked(attempt: Attempt) -> Asked | None:
    """What is to be run; None where the completion was cut, or there is nothing to hold it against."""
    problem = attempt.problem
    if not attempt.finished or not problem.answer.strip():
        return None
    return Subject(problem.answer, problem.entry_point, problem.tests), written_code(attempt.text)
