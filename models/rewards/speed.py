"""How quick a right program is beside the problem's reference, in steps and not in seconds (ACECode, paper 383).

    value = min(fastest, steps of the reference / steps of the program)     of a plain program that passes all cases
    value = 0                                                               of any other

ACECode (arXiv 2412.17264) divides run times. Seconds differ from run to run, so that no training could be made again
bit for bit, and a loaded machine would change what the policy learns; here the interpreter's instructions are counted
over the problem's cases (`models.sandbox.inside.counting`). What a built-in does within one call is one step: work that
is only moved into one looks free. Counting makes a program many times slower and must not decide who passes, so
programs run once more for it, beside `unit_tests`. A program that could reach the counter is not believed
(`models.sandbox.plain_code`). The reference is the problem's answer: the whole function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import torch
from pydantic import PositiveFloat
from torch import Tensor

from models.loop.attempt import Attempt
from models.loop.rollout import Problem, Rollout
from models.loop.slots import Reward
from models.loop.world import World
from models.parts import part
from models.rewards.unit_tests import program_of
from models.sandbox.plain_code import is_plain
from models.sandbox.sandbox import Program, shared_sandbox
from models.sandbox.settings import SandboxSettings


@part("speed")
class Speed(Reward):
    """Steps of the reference over those of a right program."""

    needs_tests = True
    needs_answers = True
    fastest: PositiveFloat = 1.0
    """Most that a program is worth: 1 wants it as quick as the reference, more wants it quicker."""
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    """What a program may use while it is counted."""

    def try_out(self) -> None:
        """Raise a UserError where this machine cannot hold a program."""
        _ = shared_sandbox(self.sandbox).layers

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """Values in [0, fastest], [completions]; 0 where the reference itself does not pass."""
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
        """Of each program that passes all cases."""
        run = sorted(programs, key=lambda program: (program.tests, program.source))
        verdicts = shared_sandbox(self.sandbox).judge(run)
        return {
            program: verdict.steps
            for program, verdict in zip(run, verdicts, strict=True)
            if verdict.outcome == "passed"
        }


def _believed(program: Program | None) -> Program | None:
    """The program, to be counted; None where there is none or its own word is not believed."""
    if program is None or not is_plain(program.source):
        return None
    return Program(program.source, program.tests, program.entry_point, program.prompt, counted=True)


def _reference(problem: Problem) -> Program:
    return Program(problem.answer, problem.tests, problem.entry_point, problem.prompt, counted=True)
