"""A compiled language, run in the sandbox: the policy writes a whole program and reads its output.

    compiled: int main() { return 3; }
    error: the program ended with status 3

Compiler and program run in the sandbox's profile for compilers, which needs namespaces. Nothing outlives a call.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from models.base.errors import UserError
from models.method.registry import part
from models.method.tool import Tool, ToolError
from models.sandbox.settings import SandboxSettings
from models.sandbox.shared import missing_programs, shared_sandbox

_OF: dict[str, tuple[str, str]] = {"c": ("cc", "program.c"), "c++": ("c++", "program.cc")}
"""Compiler and source file of a language."""
_MADE = 64
"""Exit status that marks a failed compilation; few programs end with it."""


@part("compiled")
class Compiled(Tool):
    """A compiler that runs a program and answers with its output."""

    language: Literal["c", "c++"] = "c"
    """Language of the programs."""
    sandbox: SandboxSettings = field(default_factory=lambda: SandboxSettings(seconds=8, output_kb=2, processes=8))
    """Joint limits of compiler and program; `seconds` should be below the limit of the episodes, which ends the whole
    episode."""

    @property
    def usage(self) -> str:
        """Description of its argument."""
        return f"a whole program in {self.language.upper()}; what it prints is the answer"

    def try_out(self) -> None:
        """Raise a UserError if the compiler is missing, or if this machine cannot run one in the sandbox."""
        compiler, _ = _OF[self.language]
        if missing_programs(self.sandbox, [compiler]):
            raise UserError(f"tool compiled: no compiler for {self.language} is installed ({compiler})")
        _ = shared_sandbox(self.sandbox, compilers=True).layers

    def call(self, argument: str) -> str:
        """Return the program's output, up to `sandbox.output_kb`."""
        compiler, file = _OF[self.language]
        script = f"{compiler} -O1 -w -o program {file} || exit {_MADE}; exec ./program"
        ran = shared_sandbox(self.sandbox, compilers=True).command(["sh", "-c", script], {file: argument})
        if ran.late:
            raise ToolError(f"compiler and program took longer than {self.sandbox.seconds:g} s")
        if ran.cut:
            return f"{ran.output}... (cut)"
        if ran.status == _MADE:
            wrong = [line for line in ran.errors.splitlines() if "error" in line]
            raise ToolError(wrong[0] if wrong else "the program does not compile")
        if ran.status != 0:
            raise ToolError(f"the program ended with status {ran.status}")
        return ran.output.rstrip("\n") or "(nothing was printed)"
