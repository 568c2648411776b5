"""The policy's programs run in the sandbox; the policy reads the output or the error."""

from __future__ import annotations

import pytest

from models.agents.environments.tools import Tools
from models.agents.tools.python import Python
from models.method.problem import Problem
from models.method.tool import ToolError
from models.sandbox.settings import SandboxSettings

TOOL = Python(sandbox=SandboxSettings(seconds=60, output_kb=1, workers=1))
HURRIED = Python(sandbox=SandboxSettings(seconds=1, workers=1))


def test_what_is_printed_is_the_answer() -> None:
    assert TOOL.call("print(sum(n * n for n in range(10)))") == "285"
    assert TOOL.call("for n in range(2):\n    print(n)") == "0\n1"
    assert TOOL.call("x = 1") == "(nothing was printed)"
    assert TOOL.call("while True: print('xyz')") == ("xyz\n" * 342)[:1024] + "... (cut)"


@pytest.mark.parametrize(
    "program, said",
    [
        ("1 / 0", "line 1: ZeroDivisionError: division by zero"),
        ("x = 1\nprint(y)", "line 2: NameError: name 'y' is not defined"),
        ("def", "line 1: SyntaxError"),
        ("import os\nos._exit(3)", "ended"),
        ("open('/etc/passwd')", "No such file|denied"),
        ("import socket\nsocket.socket()", "not permitted"),
    ],
)
def test_a_fault_is_an_error_that_the_policy_reads(program: str, said: str) -> None:
    with pytest.raises(ToolError, match=said):
        TOOL.call(program)


@pytest.mark.rotating(of=6)
def test_a_program_without_end_is_an_error_too() -> None:
    with pytest.raises(ToolError, match="longer than 1 s"):
        HURRIED.call("while True: pass")


def test_a_call_in_an_episode_is_answered_and_an_error_does_not_end_it() -> None:
    episode = Tools(tool=[TOOL]).open(Problem("p", "What is 2 ** 70?"))
    episode.reset(0)
    assert episode.step("python: print(2 ** 70)")[0] == "1180591620717411303424"
    heard, _, over, _, info = episode.step("python: 1 / 0")
    assert heard.startswith("error: line 1: ZeroDivisionError") and not over and info["failed"]
    turn = '<tool_call>\n{"name": "python", "arguments": {"code": "a = 3\\nprint(a + 4)"}}\n</tool_call>'
    assert episode.step(turn)[0] == "7"
