"""Python, run in the sandbox: the policy writes a program and reads its output (ReTool, arXiv 2504.11536).

    python: print(sum(n * n for n in range(10)))
    285

A program of several lines is a call in the form that chat templates teach. Nothing outlives a call.
"""

from __future__ import annotations

from dataclasses import field

from models.method.registry import part
from models.method.tool import Tool, ToolError
from models.sandbox.settings import SandboxSettings
from models.sandbox.shared import shared_sandbox


@part("python")
class Python(Tool):
    """A Python interpreter that runs a program and answers with its output."""

    usage = "a Python program; what it prints is the answer"
    sandbox: SandboxSettings = field(default_factory=lambda: SandboxSettings(output_kb=2))
    """Limits of the program; `seconds` should be below the limit of the episodes, which ends the whole episode."""

    def call(self, argument: str) -> str:
        """Return the program's output, up to `sandbox.output_kb`."""
        ran = shared_sandbox(self.sandbox).script(argument)
        if ran.late:
            raise ToolError(f"the program took longer than {self.sandbox.seconds:g} s")
        if ran.cut:
            return f"{ran.output}... (cut)"
        if ran.status != 0:
            lines = ran.errors.strip().splitlines()
            raise ToolError(lines[-1] if lines else "the program's process was ended")
        return ran.output.rstrip("\n") or "(nothing was printed)"
