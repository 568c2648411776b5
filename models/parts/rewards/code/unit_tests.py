"""Graded reward of a program by the unit tests of its problem (CodeRL, paper 29, arXiv 2207.01780).

    no program that compiles                        -1
    fails to run, in every case                     -0.6
    answers, and passes a share s of the cases      -0.3 + 0.6 s
    passes all cases                                1

CodeRL gives -0.3 to every program that fails a test; here the share of passed cases counts too, like the execution
feedback of ACECode (paper 383, arXiv 2412.17264), so that a group of failing programs can have different rewards.
ACECode's bonus for run time is the reward `speed`. Programs only run in the sandbox, and of the problem's tests only
the inputs enter it. The same verdict decides in evaluations and at the gate: a problem is solved if all cases pass.

`reads` selects the tested part. It is the program that a completion writes. It may be the stated value instead, as if a
function returned it, so that code without an instruction is a problem: what does it print, or what fills a gap
(CodeBoost, paper 270, arXiv 2508.05242). Or it is a circuit in Verilog, under a test bench (VeriPrefer, paper 15, arXiv
2504.15804).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Literal

import torch
from torch import Tensor

from models.answers.exact import marked
from models.base.bounds import Number
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout
from models.sandbox.sandbox import Program, ProgramVerdict
from models.sandbox.settings import SandboxSettings
from models.sandbox.shared import shared_sandbox
from models.sandbox.simulator import is_closed, require_simulator, simulate
from models.sandbox.written import program_of, written_circuit, written_value

UNWRITTEN = ProgramVerdict("uncompilable", 0, 0, "nothing that can be tested")


@part("unit_tests")
class UnitTests(Reward):
    """Graded reward of a program by the unit tests of its problem."""

    needs_tests = True
    verifies = True
    uncompilable: Number = -1.0
    """Reward of text that is not valid Python, and of a completion that was cut."""
    failed: Number = -0.6
    """Reward of a program that answers in no case: it raises, exits, takes too long or does not have the function."""
    wrong: Number = -0.3
    """Reward of a program that answers and passes no case."""
    nearly: Number = 0.3
    """Reward that a program approaches with the share of passed cases, as long as not all pass."""
    passed: Number = 1.0
    """Reward of a program that passes all cases."""
    reads: Literal["program", "value", "verilog"] = "program"
    """Tested part: a Python program; the stated value, as the return value of the function; or a Verilog circuit, which
    needs Icarus Verilog and namespaces."""
    untested: Number = 0.0
    """Reward of any completion if the problem has no tests, or tests that do not test the program."""
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    """Resources of a program."""

    def try_out(self) -> None:
        """Raise a UserError if this machine cannot sandbox a program."""
        if self.reads == "verilog":
            require_simulator(self.sandbox)
        _ = shared_sandbox(self.sandbox, compilers=self.reads == "verilog").layers

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return the grade of each completion, [completions]."""
        verdicts = self._verdicts([Attempt.of(each) for each in rollouts])
        return torch.tensor([self._grade(verdict) for verdict in verdicts])

    def stated(self, problem: Problem) -> str | None:
        """Return the answer if it is the requested value, or defines the function; otherwise None."""
        if self.reads == "value":
            return marked(problem.answer)
        defined = self.reads == "program" and f"def {problem.entry_point}(" in problem.answer
        return f"```python\n{problem.answer}\n```" if defined and problem.entry_point else None

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Return whether each attempt ended and passes all cases, [attempts]."""
        return [verdict.outcome == "passed" for verdict in self._verdicts(attempts)]

    def _grade(self, verdict: ProgramVerdict) -> float:
        """Return the reward of a verdict."""
        match verdict.outcome:
            case "partly":
                return self.wrong + verdict.share * (self.nearly - self.wrong)
            case "useless_tests":
                return self.untested
            case "uncompilable":
                return self.uncompilable
            case "failed":
                return self.failed
        return self.passed

    def _verdicts(self, attempts: Sequence[Attempt]) -> list[ProgramVerdict]:
        """Return the verdict on each attempt, [attempts]; equal programs are run once."""
        known: dict[Program, ProgramVerdict] = {}
        programs = [None if _unrun(attempt) else self._program(attempt) for attempt in attempts]
        run = list(dict.fromkeys(program for program in programs if program is not None))
        if run:
            known = dict(zip(run, self._judged(run), strict=True))
        return [
            _unrun(attempt) or UNWRITTEN if program is None else known[program]
            for attempt, program in zip(attempts, programs, strict=True)
        ]

    def _program(self, attempt: Attempt) -> Program | None:
        """Return the program to run; None if the completion writes nothing that can be run."""
        problem = attempt.problem
        match self.reads:
            case "program":
                return program_of(attempt)
            case "value":
                value = written_value(attempt.text)
                source = None if value is None else f"def {problem.entry_point}():\n    return {value}\n"
            case "verilog":
                design = written_circuit(problem.prompt, attempt.text)
                source = design if is_closed(design) else None
        return None if source is None else Program(source, problem.tests, problem.entry_point)

    def _judged(self, programs: Sequence[Program]) -> list[ProgramVerdict]:
        if self.reads == "verilog":
            sandbox = shared_sandbox(self.sandbox, compilers=True)
            return simulate(sandbox, [(program.source, program.tests) for program in programs])
        return shared_sandbox(self.sandbox).judge(programs)


def _unrun(attempt: Attempt) -> ProgramVerdict | None:
    """Return the verdict on an attempt that is not run, whatever its text; None if it is to be run."""
    if not attempt.problem.tests.strip():
        return ProgramVerdict("useless_tests", 0, 0, "the problem has no tests")
    return None if attempt.finished else ProgramVerdict("uncompilable", 0, 0, "the completion was cut")
