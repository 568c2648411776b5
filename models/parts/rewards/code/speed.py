"""Speed of a right program relative to the problem's reference, in steps instead of seconds (ACECode, paper 383).

    value = min(fastest, steps of the reference / steps of the program)     for a plain program that passes all cases
    value = 0                                                               for any other

ACECode (arXiv 2412.17264) divides run times. Run times vary, so no training would be reproducible bit for bit, and a
loaded machine would change what the policy learns. Here the interpreter's instructions are counted over the problem's
cases (`models.sandbox.inside.counting`). The work of a built-in within one call is one step, so work that is moved into
a built-in looks free. Counting makes a program many times slower and must not decide which programs pass, so programs
are run separately for it, in addition to `unit_tests`. The count of a program that could reach the counter is not
trusted (`models.sandbox.plain_code`). The reference is the problem's answer: the whole function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import torch
from pydantic import PositiveFloat
from torch import Tensor

from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout
from models.sandbox.plain_code import is_plain
from models.sandbox.sandbox import Program
from models.sandbox.settings import SandboxSettings
from models.sandbox.shared import shared_sandbox
from models.sandbox.written import program_of


@part("speed")
class Speed(Reward):
    """Steps of the reference divided by those of a right program."""

    needs_tests = True
    needs_answers = True
    fastest: PositiveFloat = 1.0
    """Largest reward of a program: 1 requires the speed of the reference, more rewards faster programs."""
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    """Resources of a program while it is counted."""

    def try_out(self) -> None:
        """Raise a UserError if this machine cannot sandbox a program."""
        _ = shared_sandbox(self.sandbox).layers

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return values in [0, fastest], [completions]; 0 if the reference itself does not pass."""
        programs = [_believed(program_of(Attempt.of(each))) for each in rollouts]
        references = [_reference(each.problem) for each in rollouts]
        steps = self._steps({program for program in (*programs, *references) if program is not None})
        return torch.tensor(
            [
                min(self.fastest, steps.get(reference, 0) / steps[program]) if steps.get(program) else 0.0
                for program, reference in zip(programs, references, strict=True)
            ]
        )

    def _steps(self, programs: set[Program]) -> dict[Program | None, int]:
        """Return the steps of each program that passes all cases."""
        run = sorted(programs, key=lambda program: (program.tests, program.source))
        verdicts = shared_sandbox(self.sandbox).judge(run)
        return {
            program: verdict.steps
            for program, verdict in zip(run, verdicts, strict=True)
            if verdict.outcome == "passed"
        }


def _believed(program: Program | None) -> Program | None:
    """Return the program with counting; None if there is none, or if its count cannot be trusted."""
    if program is None or not is_plain(program.source):
        return None
    return Program(program.source, program.tests, program.entry_point, program.prompt, counted=True)


def _reference(problem: Problem) -> Program:
    return Program(problem.answer, problem.tests, problem.entry_point, problem.prompt, counted=True)
