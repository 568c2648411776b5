"""Circuits in Verilog under a test bench: Icarus Verilog within the sandbox, in its profile for compilers.

    design + bench  ->  iverilog  ->  vvp  ->  lines `PASS` and `FAIL` of the bench  ->  verdict

A bench is a module that no other module instantiates. It prints `PASS` or `FAIL` at the beginning of a line for every
case and ends with `$finish`. Output of a design would look the same. A design is therefore refused if it calls a system
task, uses a compiler directive or reaches into another module, because it could write the verdict, or read it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from models.base.errors import UserError
from models.sandbox.interface import ProgramRunner, ProgramVerdict, Ran
from models.sandbox.settings import SandboxSettings
from models.sandbox.shared import missing_programs

PROGRAMS = ("iverilog", "vvp")
LONGEST = 20_000
"""Largest number of characters of a design."""
_BROKEN = 3
"""Exit status of the command if the design does not compile."""
_COMMAND = f"iverilog -g2012 -o circuit bench.v design.v || exit {_BROKEN}; exec vvp -n circuit"
_COMMENT = re.compile(r'(?P<text>"[^"\n]*")|//[^\r\n]*|/\*.*?\*/', re.DOTALL)
"""A comment, or a quoted text: a comment sign within quotes begins no comment, and hides nothing after it."""
_UNCLEAR = '"""'
"""Text that begins a string over several lines in some parsers and is an empty string in others."""
_PURE = ("$signed", "$unsigned", "$clog2", "$bits")
"""System functions that only compute."""
_REACHES = re.compile(r"`|\$\w*|[\w\]]\s*\.\s*[A-Za-z_\\]|\\|\bforce\b|\bbind\b|\bimport\b")
"""Constructs that could lead out of a design: directives, system tasks, names with dots, escaped names."""


def require_simulator(settings: SandboxSettings | None = None) -> None:
    """Check that Icarus Verilog is installed where programs run.

    Args:
        settings: those of the sandbox; None: the default, this machine.

    Raises:
        UserError: it is missing.
    """
    missing = missing_programs(settings or SandboxSettings(), PROGRAMS)
    if missing:
        raise UserError(f"Icarus Verilog is missing ({missing[0]}): apt-get install iverilog")


def is_closed(design: str) -> bool:
    """Return whether a design is ASCII text without constructs by which it could reach its bench, or print."""
    if len(design) > LONGEST or "\x00" in design or not design.isascii() or _UNCLEAR in design:
        return False
    bare = _COMMENT.sub(lambda match: match["text"] or " ", design)
    reaching = _REACHES.findall(bare)
    return all(text in _PURE for text in reaching)


def simulate(sandbox: ProgramRunner, designs: Sequence[tuple[str, str]]) -> list[ProgramVerdict]:
    """Simulate each design under its bench and return the verdicts, [designs].

    Args:
        sandbox: one for compilers.
        designs: Verilog of the design and of its bench.

    Raises:
        UserError: this machine cannot hold a command.
    """
    runs = [(("sh", "-c", _COMMAND), {"design.v": design, "bench.v": bench}) for design, bench in designs]
    return [verdict_of(ran) for ran in sandbox.commands(runs)]


def verdict_of(ran: Ran) -> ProgramVerdict:
    """Return the verdict from the exit status and the printed lines of a simulation."""
    lines = ran.output.splitlines()
    passed, failed = (sum(line.startswith(word) for line in lines) for word in ("PASS", "FAIL"))
    why = next(iter(ran.errors.splitlines()), "")[:200]
    if ran.status == _BROKEN:
        return ProgramVerdict("uncompilable", 0, 0, why)
    if ran.late or ran.cut or ran.status != 0:
        return ProgramVerdict("failed", 0, passed + failed, why or "it does not end")
    if not passed + failed:
        return ProgramVerdict("useless_tests", 0, 0, "the bench printed no result")
    if not failed:
        return ProgramVerdict("passed", passed, passed, "")
    return ProgramVerdict(
        "partly", passed, passed + failed, next(line for line in lines if line.startswith("FAIL"))[:200]
    )
