"""Counts of a program's steps and of the lines that it reaches: the same in every run, on any machine, unlike times.

Steps are instructions of the interpreter in the program's own code; the work of a built-in function within one call of
it is one step, however long it takes. Steps while the program is loaded, beyond definitions, belong to its first call.
Lines are those of the program in which a step was taken after loading.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

_NO_STEPS = frozenset({"RESUME", "COPY_FREE_VARS", "MAKE_CELL", "RETURN_GENERATOR", "CACHE"})
"""Instructions at the beginning of every function, whatever it does."""


@dataclass
class CallCounts:
    """Counts over calls."""

    file: str
    """File name that the program was compiled with."""
    steps: int = 0
    lines: set[int] = field(default_factory=set)

    def call(self, function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Call `function` and return its result, or raise its exception; its steps and lines are added.

        Raises:
            RecursionError: it went so deep that the counter had no room. Python then ends the tracing, and all later
                steps would not be counted.
        """
        sys.settrace(self._enter)
        try:
            given = function(*arguments, **named)
            counted = sys.gettrace() == self._enter
        finally:
            sys.settrace(None)
        if not counted:
            raise RecursionError("so deep that its steps cannot be counted")
        return given

    def load(self, code: CodeType, names: dict[str, Any]) -> None:
        """Run a program's own code, which defines its functions; `names` receives the definitions.

        One step for each of its instructions is free, as definitions are. Loops and calls are not free: otherwise a
        program could compute its answers before it is called. Raises as `call` does.
        """
        loading = CallCounts(self.file)
        loading.call(exec, (code, names), {})
        free = sum(instruction.opname not in _NO_STEPS for instruction in dis.get_instructions(code))
        self.steps += max(0, loading.steps - free)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != self.file:
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            self.steps += 1
            if frame.f_lineno is not None:
                self.lines.add(frame.f_lineno)
        return self._step


def lines_of(code: CodeType) -> set[int]:
    """Return the lines of a program in which steps can be taken after loading: those within its functions."""
    lines: set[int] = set()
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            lines |= lines_of(inner) | {
                instruction.positions.lineno
                for instruction in dis.get_instructions(inner)
                if instruction.opname not in _NO_STEPS and instruction.positions and instruction.positions.lineno
            }
    return lines
