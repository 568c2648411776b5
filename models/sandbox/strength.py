"""Quality of tests that a model wrote: they are run on a reference, and on mutants of it (`models.answers.mutants`).

    reference ->  do they run, does every case pass, how many of its lines do they reach
    mutants   ->  how many fail the tests, of those that the problem's own tests distinguish from the reference

Tests run in the judge, which decides, so only tests that cannot reach the judge are run at all
(`models.sandbox.plain_code`). Mutants are run only under tests that the reference passes, because a wrong test fails
every mutant.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from models.answers.mutants import mutants_of
from models.sandbox.inside.counting import lines_of
from models.sandbox.interface import Program, ProgramRunner
from models.sandbox.plain_code import is_plain
from models.sandbox.settings import SandboxSettings
from models.sandbox.shared import shared_sandbox


@dataclass(frozen=True)
class Subject:
    """Problem that tests are written for."""

    reference: str
    """A correct program: Python that defines `entry_point`."""
    entry_point: str
    tests: str = ""
    """Tests of the problem, which decide which mutants are distinguishable; empty: all mutants count."""


@dataclass(frozen=True)
class Strength:
    """Results of tests on their reference. All but `parses` are zero for tests that are not plain Python."""

    parses: bool = False
    runs: bool = False
    """Whether they call the reference, and it answers."""
    passes: bool = False
    """Whether the reference passes every case."""
    covered: float = 0.0
    """Share of the reference's lines that they reach, in [0, 1]; zero if they do not pass."""


TestedSubject = tuple[Subject, str]
"""A subject, and tests of it in Python."""


@lru_cache(maxsize=2)
def strengths(settings: SandboxSettings, requests: tuple[TestedSubject, ...]) -> dict[TestedSubject, Strength]:
    """Run tests on their references and return the results.

    The cache serves parts of a recipe that need the same results in a round.

    Args:
        settings: limits of a run of tests.
        requests: different subjects and tests.

    Raises:
        UserError: this machine cannot hold a program.
    """
    results = {each: Strength(parses=_parses(each[1])) for each in requests}
    plain = [each for each in requests if results[each].parses and is_plain(each[1])]
    verdicts = shared_sandbox(settings).judge([_reference(*each) for each in plain])
    for each, verdict in zip(plain, verdicts, strict=True):
        passes = verdict.outcome == "passed"
        covered = min(1.0, verdict.lines / max(1, _lines(each[0].reference))) if passes else 0.0
        results[each] = Strength(True, passes or verdict.outcome == "partly", passes, covered)
    return results


@lru_cache(maxsize=2)
def kills(settings: SandboxSettings, mutants: int, requests: tuple[TestedSubject, ...]) -> dict[TestedSubject, float]:
    """Return the share of the mutants that fail the tests, in [0, 1]; zero if the reference fails too or none exist.

    Args:
        settings: as of `strengths`.
        mutants: largest number of mutants of a reference.
        requests: likewise.

    Raises:
        UserError: this machine cannot hold a program.
    """
    results = strengths(settings, requests)
    passing = [each for each in requests if results[each].passes]
    visible = {
        subject: _visible_mutants(settings, mutants, subject) for subject in dict.fromkeys(each[0] for each in passing)
    }
    runs = [(subject, tests, mutant) for subject, tests in passing for mutant in visible[subject]]
    killed = _killed(shared_sandbox(settings), runs)
    shares = dict.fromkeys(requests, 0.0)
    for subject, tests in passing:
        killed_count = sum((subject, tests, mutant) in killed for mutant in visible[subject])
        shares[subject, tests] = killed_count / max(1, len(visible[subject]))
    return shares


@lru_cache(maxsize=65536)
def _visible_mutants(settings: SandboxSettings, mutants: int, subject: Subject) -> tuple[str, ...]:
    """Return the mutants that fail the problem's own tests; all mutants if it has no tests, or they fail none."""
    sources = mutants_of(subject.reference, mutants)
    if not subject.tests.strip():
        return sources
    killed = _killed(shared_sandbox(settings), [(subject, subject.tests, mutant) for mutant in sources])
    return tuple(mutant for mutant in sources if (subject, subject.tests, mutant) in killed) or sources


Run = tuple[Subject, str, str]
"""A subject, tests of it, and a program to run under them."""


def _killed(sandbox: ProgramRunner, runs: Sequence[Run]) -> set[Run]:
    verdicts = sandbox.judge([Program(source, tests, subject.entry_point) for subject, tests, source in runs])
    return {run for run, verdict in zip(runs, verdicts, strict=True) if verdict.outcome != "passed"}


def _reference(subject: Subject, tests: str) -> Program:
    return Program(_on_lines(subject.reference), tests, subject.entry_point, counted=True)


@lru_cache(maxsize=65536)
def _on_lines(source: str) -> str:
    """Rewrite a program with one statement a line; unchanged if it is not valid Python."""
    try:
        return ast.unparse(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source


@lru_cache(maxsize=65536)
def _lines(source: str) -> int:
    try:
        return len(lines_of(compile(_on_lines(source), "<reference>", "exec")))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return 0


def _parses(tests: str) -> bool:
    try:
        return bool(ast.parse(tests).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
