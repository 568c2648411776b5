"""Quality of tests that the policy writes for a described function (PyTester, paper 25, arXiv 2401.07576).

    syntax      1 if the tests are valid Python
    runs        1 if they run on the reference
    passes      1 if the reference passes every case
    covers      share of the reference's lines that are reached, if it passes
    kills       share of the reference's mutants that fail, if it passes

A recipe lists the part once for each component; their weights are those of the sum. The first three alone are met by
`assert f(1) == f(1)`, which passes for any function. Mutants, programs that differ from the reference in one place,
separate such tests from good ones. Only mutants that fail the problem's own tests count. The reference is the problem's
answer: the whole function. Everything runs in the sandbox (`models.sandbox.strength`). Tests are right, also in
evaluations and at the gate, if the reference passes them and no such mutant does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from models.method.attempt import Attempt
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout
from models.sandbox.settings import SandboxSettings
from models.sandbox.shared import shared_sandbox
from models.sandbox.strength import Strength, Subject, TestedSubject, kills, strengths
from models.sandbox.written import written_code


@part("written_tests")
class WrittenTests(Reward):
    """One quality of written tests: syntax, running, passing, coverage or kills; zero for a completion that was cut."""

    needs_answers = True
    needs_tests = True
    asks: Literal["syntax", "runs", "passes", "covers", "kills"] = "kills"
    """Component that is measured."""
    mutants: Annotated[int, Field(ge=1, le=1000)] = 8
    """Maximum number of mutants of a reference, sampled evenly from all."""
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    """Resources of one run of tests."""

    @property
    def verifies(self) -> bool:
        """Whether tests that kill all mutants decide in evaluations and at the gate too."""
        return self.asks == "kills"

    def try_out(self) -> None:
        """Raise a UserError if this machine cannot sandbox a program."""
        _ = shared_sandbox(self.sandbox).layers

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return values in [0, 1], [completions]."""
        return torch.tensor(self._values([Attempt.of(each) for each in rollouts]))

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Return whether each attempt is tests that the reference passes and no mutant does, [attempts]."""
        return [value == 1.0 for value in self._values(attempts)]

    def _values(self, attempts: Sequence[Attempt]) -> list[float]:
        """Return the value of each attempt, [attempts]; equal tests are run once."""
        tests = [_tests_of(attempt) for attempt in attempts]
        distinct = tuple(dict.fromkeys(each for each in tests if each is not None))
        if self.asks == "kills":
            values = kills(self.sandbox, self.mutants, distinct)
        else:
            values = {each: self._value(strength) for each, strength in strengths(self.sandbox, distinct).items()}
        return [0.0 if each is None else values[each] for each in tests]

    def _value(self, strength: Strength) -> float:
        match self.asks:
            case "syntax":
                return float(strength.parses)
            case "runs":
                return float(strength.runs)
            case "passes":
                return float(strength.passes)
        return strength.covered


def _tests_of(attempt: Attempt) -> TestedSubject | None:
    """Return the tests to run and their subject.

    None if the completion was cut, or the problem does not have a reference.
    """
    problem = attempt.problem
    if not attempt.finished or not problem.answer.strip():
        return None
    return Subject(problem.answer, problem.entry_point, problem.tests), written_code(attempt.text)
