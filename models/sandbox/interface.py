"""The interface of a sandbox: what every runner of untrusted programs accepts, returns and guarantees.

    Program  ->  judge   ->  ProgramVerdict
    source   ->  script  ->  Ran
    words    ->  command ->  Ran

Two runners implement it: `models.sandbox.sandbox.Sandbox`, which uses the layers of this machine, and
`models.sandbox.container.ContainerSandbox`, which uses docker or podman. `models.sandbox.shared.shared_sandbox`
returns the one that the settings choose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from models.sandbox.fork_servers import Layers
from models.sandbox.settings import SandboxSettings

Outcome = Literal["uncompilable", "failed", "partly", "passed", "useless_tests"]
"""Outcome of a program under its tests.

uncompilable: it is not valid Python
failed: no case passed, and in each the program raised, ended, took too long or sent nonsense
partly: some cases or none passed, and it answered at least once
passed: all cases passed
useless_tests: the tests are not valid Python or never call the program; the result does not concern the program
"""


@dataclass(frozen=True)
class Program:
    """A program and the tests that it must pass."""

    source: str
    """The program: Python that defines `entry_point`."""
    tests: str
    """Python that defines `check(candidate)`, or statements that call the function by its name."""
    entry_point: str
    prompt: str = ""
    """Prompt of the program; if it is Python, its definitions are available to the tests too."""
    counted: bool = False
    """Whether its steps and lines are counted, which makes it many times slower (`models.sandbox.inside.counting`)."""


@dataclass(frozen=True)
class ProgramVerdict:
    """Outcome of a program under its tests."""

    outcome: Outcome
    passed: int
    cases: int
    why: str
    """Reason of one case that did not pass, in one line; empty if all passed. Cases are run in random order."""
    steps: int = 0
    """Instructions that the program took over all cases, if they were counted. The program reports them itself, so they
    can be trusted only if it is plain (`models.sandbox.plain_code`)."""
    lines: int = 0
    """Number of different lines of the program in which the steps were taken; the same limits apply."""

    @property
    def share(self) -> float:
        """Share of the cases that passed, in [0, 1]."""
        return self.passed / self.cases if self.cases else 0.0


@dataclass(frozen=True)
class Ran:
    """Output of a script or a command, and how it ended."""

    output: str
    errors: str
    status: int | None
    """Exit status; 0: success; below 0: ended by that signal; None: ended for too much output or too much time."""
    cut: bool
    """Whether it printed more than is kept."""
    late: bool
    """Whether its time was over."""


class ProgramRunner(Protocol):
    """A runner of untrusted programs. Its methods may be called from several threads.

    A runner guarantees:

    - A program reaches no file, process or address outside, and leaves nothing that the next program could read.
    - A program sees the inputs of its tests, and never the expected results.
    - Every call returns within the limits of its settings, whatever the program does. A program that exceeds them is
      ended with all that it has started.
    - A fault of a program is a verdict or a status. Only a fault of the machine raises, and then a `UserError`.
    """

    settings: SandboxSettings
    compilers: bool
    """Whether programs may start others: compilers, and their output."""

    @property
    def workers(self) -> int:
        """Number of programs that run in parallel."""

    @property
    def layers(self) -> Layers:
        """Strength of the isolation: the layers that hold programs here. Reading it before a run finds every obstacle.

        Raises:
            UserError: programs cannot be run here, or the layers do not suffice and that is not accepted.
        """

    def judge(self, programs: Sequence[Program]) -> list[ProgramVerdict]:
        """Run each program under its tests and return the verdicts, [programs]; raises as `layers` does."""

    def script(self, source: str) -> Ran:
        """Run a program as a script, with nothing on its standard input; raises as `layers` does."""

    def scripts(self, sources: Sequence[str]) -> list[Ran]:
        """Run programs as `script` does, in parallel, [programs]; raises as `layers` does."""

    def command(self, words: Sequence[str], files: Mapping[str, str]) -> Ran:
        """Run a command in an empty folder that holds `files`, text by plain name; raises as `layers` does.

        Raises:
            ValueError: this runner is not one for compilers, or a name is not plain.
        """

    def commands(self, runs: Sequence[tuple[Sequence[str], Mapping[str, str]]]) -> list[Ran]:
        """Run commands, each with its files, as `command` does, in parallel, [commands]; raises as `layers` does."""

    def close(self) -> None:
        """End all processes that wait for programs."""
