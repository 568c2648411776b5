"""What a program is worth by the tests of its problem, in grades (CodeRL, paper 29, arXiv 2207.01780).

    no program that compiles                        -1
    fails at running, in every case                 -0.6
    answers, and passes a share s of the cases      -0.3 + 0.6 s
    passes all cases                                1

CodeRL gives -0.3 to whatever fails a test; here the share of cases that pass counts too, as execution feedback does in
ACECode (paper 383, arXiv 2412.17264), so that a group of failing programs need not be flat. Its bonus for run time is
the reward `speed`. Programs run in the sandbox and nowhere else, and nothing of the problem's tests
but inputs goes in there. The same verdict decides in evaluations and at the gate: solved is what passes all cases.

What is tested is, by `reads`, the program that a completion writes; or the value that it states, as if a function
returned it, so that code without any instruction is a problem: what does it print, what must stand where something is
missing (CodeBoost, paper 270, arXiv 2508.05242); or a circuit in Verilog, under a test bench (VeriPrefer, paper 15,
arXiv 2504.15804).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Literal

import torch
from torch import Tensor

from models.bounds import Number
from models.loop.attempt import Attempt
from models.loop.rollout import Problem, Rollout
from models.loop.slots import Reward
from models.loop.world import World
from models.parts import part
from models.rewards.exact_answer import marked
from models.sandbox.sandbox import Program, Verdict, shared_sandbox
from models.sandbox.settings import SandboxSettings
from models.sandbox.simulator import is_closed, require_simulator, simulate
from models.sandbox.written import written_circuit, written_program, written_value

UNWRITTEN = Verdict("uncompilable", 0, 0, "nothing that can be tested")


@part("unit_tests")
class UnitTests(Reward):
    """Grades of a program under the unit tests of its problem."""

    needs_tests = True
    verifies = True
    uncompilable: Number = -1.0
    """Of what is no Python, and of a completion that was cut."""
    failed: Number = -0.6
    """Of a program that answers in no case: it raises, ends, takes too long or has no such function."""
    wrong: Number = -0.3
    """Of a program that answers and passes no case."""
    nearly: Number = 0.3
    """What a program nears with the share of the cases that it passes, while not all do."""
    passed: Number = 1.0
    """Of a program that passes all cases."""
    reads: Literal["program", "value", "verilog"] = "program"
    """What is tested: a Python program; the stated value, which is what the function answers; or a Verilog circuit,
    where Icarus Verilog is installed and namespaces can be had."""
    untested: Number = 0.0
    """Of any completion where the problem has no tests, or tests that ask the program nothing."""
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    """What a program may use."""

    def try_out(self) -> None:
        """Raise a UserError where this machine cannot hold a program."""
        if self.reads == "verilog":
            require_simulator()
        _ = shared_sandbox(self.sandbox, compilers=self.reads == "verilog").layers

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """The grade of each completion, [completions]."""
        verdicts = self._verdicts([Attempt.of(each) for each in rollouts])
        return torch.tensor([self._grade(verdict) for verdict in verdicts])

    def stated(self, problem: Problem) -> str | None:
        """Return the answer where it is the value that is asked for, or defines the function; else None."""
        if self.reads == "value":
            return marked(problem.answer)
        defined = self.reads == "program" and f"def {problem.entry_point}(" in problem.answer
        return f"```python\n{problem.answer}\n```" if defined and problem.entry_point else None

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Which attempts ended and pass all cases, [attempts]."""
        return [verdict.outcome == "passed" for verdict in self._verdicts(attempts)]

    def _grade(self, verdict: Verdict) -> float:
        """What a verdict is worth."""
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

    def _verdicts(self, attempts: Sequence[Attempt]) -> list[Verdict]:
        """Of each attempt, [attempts]; equal programs are run once."""
        known: dict[Program, Verdict] = {}
        programs = [None if _unrun(attempt) else self._program(attempt) for attempt in attempts]
        run = list(dict.fromkeys(program for program in programs if program is not None))
        if run:
            known = dict(zip(run, self._judged(run), strict=True))
        return [
            _unrun(attempt) or UNWRITTEN if program is None else known[program]
            for attempt, program in zip(attempts, programs, strict=True)
        ]

    def _program(self, attempt: Attempt) -> Program | None:
        """What is to be run; None where the completion writes nothing that can be."""
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

    def _judged(self, programs: Sequence[Program]) -> list[Verdict]:
        if self.reads == "verilog":
            sandbox = shared_sandbox(self.sandbox, compilers=True)
            return simulate(sandbox, [(program.source, program.tests) for program in programs])
        return shared_sandbox(self.sandbox).judge(programs)


def program_of(attempt: Attempt) -> Program | None:
    """What is to be run; None where there is nothing to run, or nothing to hold it against."""
    problem = attempt.problem
    if not attempt.finished or not problem.tests.strip():
        return None
    source = written_program(problem.prompt, attempt.text, problem.entry_point)
    return Program(source, problem.tests, problem.entry_point, problem.prompt)


def _unrun(attempt: Attempt) -> Verdict | None:
    """The verdict on what is not run, whatever it says; None where it is to be looked at."""
    if not attempt.problem.tests.strip():
        return Verdict("useless_tests", 0, 0, "the problem has no tests")
    return None if attempt.finished else Verdict("uncompilable", 0, 0, "the completion was cut")
