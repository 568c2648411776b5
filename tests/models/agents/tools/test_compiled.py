"""Programs in compiled languages run in the sandbox with a profile for compilers; the policy reads output or error."""

from __future__ import annotations

import shutil

import pytest

from models.agents.environments.tools import Tools
from models.agents.tools.compiled import Compiled
from models.base.errors import UserError
from models.method.problem import Problem
from models.method.tool import ToolError
from models.sandbox.settings import SandboxSettings

LIMITS = SandboxSettings(seconds=30, output_kb=1, processes=8, workers=1)
C = Compiled(sandbox=LIMITS)
SAYS = "#include <stdio.h>\nint main() {{ {} }}\n"


@pytest.fixture(scope="module", autouse=True)
def compiler() -> None:
    try:
        C.try_out()
    except UserError as error:
        pytest.skip(str(error))


def test_what_is_printed_is_the_answer() -> None:
    assert C.call(SAYS.format('printf("%d\\n", 6 * 7);')) == "42"
    assert C.call(SAYS.format("return 0;")) == "(nothing was printed)"


def test_another_language_has_another_compiler() -> None:
    tool = Compiled(language="c++", sandbox=LIMITS)
    if shutil.which("c++") is None:
        with pytest.raises(UserError, match=r"no compiler for c\+\+ is installed"):
            tool.try_out()
    else:
        assert tool.call("#include <iostream>\nint main() { std::cout << 42; }") == "42"
        assert tool.usage == "a whole program in C++; what it prints is the answer"


@pytest.mark.parametrize(
    "program, said",
    [
        (SAYS.format("return x;"), r"program\.c:2:\d+: error: .x. undeclared"),
        (SAYS.format("return 3;"), "ended with status 3"),
        (SAYS.format("*(volatile int *)0 = 1;"), "ended with status"),
        ('#include "/etc/passwd"\nint main() { return 0; }', "/etc/passwd: No such file|denied"),
        ('#include <stdio.h>\nint main() { return fopen("/etc/passwd", "r") ? 0 : 7; }', "status 7"),
        ("#include <sys/socket.h>\nint main() { return socket(AF_INET, SOCK_STREAM, 0) < 0 ? 8 : 0; }", "status 8"),
    ],
)
def test_a_fault_is_an_error_that_the_policy_reads(program: str, said: str) -> None:
    with pytest.raises(ToolError, match=said):
        C.call(program)


@pytest.mark.rotating(of=6)
def test_neither_a_program_nor_a_compiler_without_end_outlives_its_seconds() -> None:
    hurried = Compiled(sandbox=SandboxSettings(seconds=2, processes=8, workers=1))
    for program in ("int main() { for (;;); }", '#include "/dev/stdin"\n#include __FILE__\n'):
        with pytest.raises(ToolError):
            hurried.call(program)
    assert C.call(SAYS.format('printf("on");')) == "on"


def test_a_call_in_an_episode_is_answered_and_an_error_does_not_end_it() -> None:
    episode = Tools(tool=[C]).open(Problem("p", "What is 2 ** 20?"))
    episode.reset(0)
    heard, _, over, _, info = episode.step("compiled: int main() { return 3; }")
    assert heard == "error: the program ended with status 3" and not over and info["failed"]
    code = 'int printf(const char *, ...);\\nint main() { printf(\\"%d\\", 1 << 20); }'
    turn = '<tool_call>\n{"name": "compiled", "arguments": {"code": "' + code + '"}}\n</tool_call>'
    assert episode.step(turn)[0] == "1048576"
