"""The sandbox: verdicts on programs, results of scripts and commands, and refusal if it cannot protect."""

from __future__ import annotations

import json
import logging
import os
import pwd
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.base.errors import UserError
from models.sandbox import fork_servers
from models.sandbox.fork_servers import Layers
from models.sandbox.inside import wire
from models.sandbox.inside.cases import UselessTests, cases_of
from models.sandbox.inside.seccomp import UnknownMachine, filter_for
from models.sandbox.inside.system_calls import ALLOWED, NUMBERS
from models.sandbox.sandbox import Program, Sandbox
from models.sandbox.settings import SandboxSettings
from tests.support.compiler_sandbox import compiler_sandbox

CHECK = """
def check(candidate):
    assert candidate(1) == 2
    assert candidate(5) == 6
    assert candidate(-3) == -2
"""
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    made = Sandbox(SandboxSettings(seconds=30, seconds_together=60, workers=2, output_kb=1))
    yield made
    made.close()


@pytest.mark.parametrize(
    "source, outcome, passed",
    [
        ("def f(x):\n    return x + 1\n", "passed", 3),
        ("def f(x):\n    return 6\n", "partly", 1),
        ("def f(x):\n    return 0\n", "partly", 0),
        ("def f(x):\n    pass\n", "partly", 0),
        ("def f(x):\n    return x + 1 if x > 0 else 1 / 0\n", "partly", 2),
        ("def f(x):\n    return 1 / 0\n", "failed", 0),
        ("def g(x):\n    return x + 1\n", "failed", 0),
        ("raise ValueError\n", "failed", 0),
        ("def f(x:\n", "uncompilable", 0),
        ("Here is the function:\n", "uncompilable", 0),
        ("", "failed", 0),
    ],
)
def test_each_outcome(source: str, outcome: str, passed: int, sandbox: Sandbox) -> None:
    verdict = sandbox.judge([Program(source, CHECK, "f")])[0]
    assert (verdict.outcome, verdict.passed, verdict.cases) == (outcome, passed, 3)
    assert bool(verdict.why) == (outcome != "passed")


def test_verdicts_stand_in_the_order_of_the_programs(sandbox: Sandbox) -> None:
    programs = [Program(f"def f(x):\n    return {value}\n", CHECK, "f") for value in (2, 0, 6, 9, -2, 1)]
    assert [verdict.passed for verdict in sandbox.judge(programs)] == [1, 0, 1, 0, 1, 0]


@pytest.mark.parametrize(
    "tests", ["", "assert True", "def check(candidate):\n    assert 1 == 1\n", "def check(:", "check = 3"]
)
def test_tests_that_ask_nothing_are_passed_by_nothing(tests: str, sandbox: Sandbox) -> None:
    assert sandbox.judge([Program("def f(x):\n    return x + 1\n", tests, "f")])[0].outcome == "useless_tests"


def test_a_test_may_expect_an_exception_but_no_death(sandbox: Sandbox) -> None:
    tests = "try:\n    f(0)\n    assert False\nexcept ValueError:\n    pass\n"
    raising = "def f(x):\n    raise ValueError('no')\n"
    assert sandbox.judge([Program(raising, tests, "f")])[0].outcome == "passed"
    for source in (
        "def f(x):\n    return x\n",
        "def f(x):\n    raise KeyError\n",
        "import os\ndef f(x):\n    os._exit(0)\n",
    ):
        assert sandbox.judge([Program(source, tests, "f")])[0].passed == 0
    anything = "def check(candidate):\n    try:\n        candidate(0)\n    except:\n        pass\n    assert True\n"
    assert sandbox.judge([Program("import os\ndef f(x):\n    os._exit(0)\n", anything, "f")])[0].passed == 0


def test_plain_values_of_every_kind_go_in_and_come_back(sandbox: Sandbox) -> None:
    values = (
        "[None, True, -7, 2**100, 1.5, float('inf'), -0.0, 'é\\0', b'\\xff', 1+2j, (1, [2]), {1: 'a', (2, 3): {4}}, "
        "frozenset({5}), [], {}]"
    )
    tests = f"for value in {values}:\n    got = f(value)\n    assert got == value and type(got) is type(value)\n"
    assert sandbox.judge([Program("def f(x):\n    return x\n", tests, "f")])[0].outcome == "passed"
    assert repr(wire.unpack(wire.pack(-0.0))) == "-0.0"


def test_a_subclass_of_a_builtin_type_comes_back_as_the_type(sandbox: Sandbox) -> None:
    source = (
        "from collections import Counter, namedtuple\n"
        "def f(x):\n    return [Counter('aab'), namedtuple('P', 'a b')(1, 2)]\n"
    )
    tests = "assert f(0) == [{'a': 2, 'b': 1}, (1, 2)]\nassert type(f(0)[0]) is dict\n"
    assert sandbox.judge([Program(source, tests, "f")])[0].outcome == "passed"


def test_cases_are_cut_where_assertions_stand_and_share_what_is_made_before() -> None:
    def count(body: str) -> int:
        return len(cases_of("def check(c):\n" + "".join(f"    {line}\n" for line in body.split("; ")), "f"))

    assert count("assert c(1) == 1; assert c(2) == 2") == 2
    assert count("a = 3; assert c(a) == 1; assert True; assert c(2) == 2") == 2
    assert count("assert c(1) == 1; got = c(2); assert got == 2") == 1, "what one statement got another asserts"
    assert len(cases_of("for i in range(3):\n    assert f(i)\nassert f(7)", "f")) == 2
    assert len(cases_of("def check(candidate):\n    assert candidate(1)\ncheck(f)", "f")) == 1
    with pytest.raises(UselessTests):
        cases_of("def check():\n    pass", "f")


def test_the_prompts_helpers_are_there_for_the_tests_and_the_programs_are_not(sandbox: Sandbox) -> None:
    prompt = "def double(x):\n    return 2 * x\n\ndef f(x):\n"
    tests = "def check(candidate):\n    assert candidate(3) == double(3)\n"
    program = "def double(x):\n    return 0\n\ndef f(x):\n    return {}\n"
    honest = Program(program.format("2 * x"), tests, "f", prompt + "    pass\n")
    lying = Program(program.format("double(x)"), tests, "f", prompt + "    pass\n")
    assert [verdict.outcome for verdict in sandbox.judge([honest, lying])] == ["passed", "partly"]


def test_a_script_prints_and_its_fault_names_the_line(sandbox: Sandbox) -> None:
    assert sandbox.script("print(6 * 7)\nprint('é')").output == "42\né\n"
    failed = sandbox.script("print(1)\nx = 3\nx / 0\n")
    assert (failed.output, failed.errors, failed.status) == ("1\n", "line 3: ZeroDivisionError: division by zero\n", 1)
    assert sandbox.script("x = (").errors.startswith("line 1: SyntaxError")
    assert sandbox.script("import sys; sys.exit(0)").status == 0
    assert (
        sandbox.script("import dataclasses\n@dataclasses.dataclass\nclass A:\n    b: int\nprint(A(1))").output
        == "A(b=1)\n"
    )


@pytest.mark.rotating(of=6)
def test_a_script_that_prints_without_end_is_cut_and_one_without_end_is_late(sandbox: Sandbox) -> None:
    cut = sandbox.script("while True:\n    print('x' * 100)")
    assert cut.cut and len(cut.output) == 1 << 10
    hurried = Sandbox(SandboxSettings(seconds=1, workers=1))
    late = hurried.script("print('begun', flush=True)\nwhile True:\n    pass")
    assert late.late and late.output in ("begun\n", "") and late.status != 0
    hurried.close()


@pytest.fixture(scope="module")
def compilers() -> Iterator[Sandbox]:
    with compiler_sandbox(SandboxSettings(seconds=30, workers=1, processes=8)) as made:
        yield made


def test_a_compiler_compiles_and_what_it_made_runs(compilers: Sandbox) -> None:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler here")
    source = '#include <stdio.h>\nint main() { printf("%d\\n", 6 * 7); return 0; }\n'
    ran = compilers.command(["sh", "-c", "cc -o made made.c && ./made"], {"made.c": source})
    assert (ran.output, ran.status) == ("42\n", 0), ran


def test_commands_reach_nothing_outside_and_leave_nothing_behind(compilers: Sandbox) -> None:
    assert compilers.command(["cat", "/etc/passwd"], {}).status != 0
    assert compilers.command(["sh", "-c", "echo x > left; (sleep 30 &); echo done"], {}).output == "done\n"
    assert compilers.command(["sh", "-c", "ls; ls /proc | grep -c '^[0-9]'"], {}).output.split()[0].isdigit()
    seen = compilers.command(["sh", "-c", "cat /proc/*/comm | grep -c sleep"], {}).output
    assert seen == "0\n"
    with pytest.raises(ValueError, match="not a plain file name"):
        compilers.command(["true"], {"../evil": ""})


def test_a_bomb_of_forks_ends_where_the_limit_is(compilers: Sandbox) -> None:
    ran = compilers.command(["sh", "-c", "bomb() { bomb | bomb & }; bomb; sleep 60"], {})
    assert not ran.late and ran.status != 0
    assert compilers.command(["echo", "well"], {}).output == "well\n"


def test_only_a_sandbox_for_compilers_runs_commands(sandbox: Sandbox) -> None:
    with pytest.raises(ValueError, match="only a sandbox for compilers"):
        sandbox.command(["true"], {})


def test_where_no_layer_can_be_had_it_refuses_in_a_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    really = fork_servers.start

    def bare(*arguments: object, **named: object) -> fork_servers.ForkServer:
        server = really(*arguments, **named)  # type: ignore[arg-type]
        server.layers = Layers(False, 0, False)
        return server

    monkeypatch.setattr("models.sandbox.sandbox.start", bare)
    with pytest.raises(UserError, match=r"nothing here can hold a program.*sandbox\.unprotected: true") as refused:
        Sandbox(namespaces=False).judge([Program("def f(x):\n    return x + 1\n", CHECK, "f")])
    assert "\n" not in str(refused.value)
    accepting = Sandbox(SandboxSettings(unprotected=True), namespaces=False)
    with caplog.at_level(logging.ERROR, "rewardflow.sandbox"):
        assert accepting.judge([Program("def f(x):\n    return x + 1\n", CHECK, "f")])[0].outcome == "passed"
    assert "UNPROTECTED" in caplog.text
    accepting.close()


def test_layers_are_enough_with_namespaces_or_with_both_inner_layers() -> None:
    enough = {
        (namespaces, landlock, seccomp): Layers(namespaces, landlock, seccomp).enough
        for namespaces in (False, True)
        for landlock in (0, 5)
        for seccomp in (False, True)
    }
    assert [held for held, is_enough in enough.items() if not is_enough] == [
        (False, 0, False),
        (False, 0, True),
        (False, 5, False),
    ]


def test_there_is_no_filter_for_a_machine_that_is_not_known() -> None:
    with pytest.raises(UnknownMachine, match="riscv64"):
        filter_for("program", "riscv64")


@pytest.mark.parametrize("machine", NUMBERS)
@pytest.mark.parametrize("kind", ALLOWED)
def test_every_jump_of_a_filter_lands_inside_it(kind: str, machine: str) -> None:
    code = filter_for(kind, machine)
    assert len(code) % 8 == 0
    count = len(code) // 8
    for place in range(count):
        test, on_true, on_false = (
            int.from_bytes(code[8 * place : 8 * place + 2], "little"),
            code[8 * place + 2],
            code[8 * place + 3],
        )
        if test != 0x06:
            assert place + 1 + max(on_true, on_false) < count
    assert code[-8] == 0x06, "it ends with a verdict"


@pytest.mark.parametrize(
    "machine, file", [("x86_64", "x86_64-linux-gnu/asm/unistd_64.h"), ("aarch64", "asm-generic/unistd.h")]
)
def test_numbers_of_calls_are_the_kernels(machine: str, file: str) -> None:
    header = Path("/usr/include") / file
    if not header.is_file():
        pytest.skip(f"no {header}")
    said = {
        name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())
    }
    renamed = {"newfstatat": "fstatat"} if machine == "aarch64" else {}
    assert {name: said[renamed.get(name, name)] for name in NUMBERS[machine]} == dict(NUMBERS[machine])


@pytest.mark.rotating(of=8)
def test_every_reference_solution_of_humaneval_passes_and_no_empty_one(shared_data: Path) -> None:
    rows = [json.loads(line) for line in (shared_data / "humaneval.jsonl").read_text().splitlines()]
    sandbox = Sandbox(SandboxSettings(seconds=20, seconds_together=60))

    def passed(body: str) -> int:
        programs = [
            Program(row["prompt"] + (body or row["canonical_solution"]), row["test"], row["entry_point"], row["prompt"])
            for row in rows
        ]
        return sum(verdict.outcome == "passed" for verdict in sandbox.judge(programs))

    assert (passed(""), passed("    pass\n"), len(rows)) == (164, 0, 164)
    sandbox.close()


def test_it_works_for_a_user_who_is_not_root(tmp_path: Path) -> None:
    if os.getuid():
        pytest.skip("all other tests show it: they do not run as root")
    python = "/usr/bin/python3.11"
    if not os.path.exists(python) or sys.version_info[:2] != (3, 11):
        pytest.skip(f"no {python} that everybody may read")
    packages = [path for path in sys.path if path.endswith("site-packages")]
    script = (
        "from models.sandbox.sandbox import Program, Sandbox\n"
        "from models.sandbox.settings import SandboxSettings\nsandbox = Sandbox(SandboxSettings(workers=1))\n"
        f"print(sandbox.judge([Program('def f(x): return x + 1', {CHECK!r}, 'f')])[0].outcome)\n"
        "print(sandbox.script('print(7)').output)\n"
    )
    nobody = pwd.getpwnam("nobody")
    ran = subprocess.run(
        [python, "-c", script],
        cwd=ROOT,
        env={"PYTHONPATH": os.pathsep.join([str(ROOT), *packages]), "PATH": "/usr/bin:/bin"},
        user=nobody.pw_uid,
        group=nobody.pw_gid,
        extra_groups=[],
        capture_output=True,
        text=True,
    )
    if "Permission denied" in ran.stderr or "No module named" in ran.stderr:
        pytest.skip("the environment's packages are not readable by everybody")
    assert ran.stdout.startswith("passed\n7\n"), ran.stdout + ran.stderr


def test_a_program_that_is_longer_than_a_message_is_no_reason_to_fail(sandbox: Sandbox) -> None:
    assert sandbox.judge([Program("#" * (9 << 20), CHECK, "f")])[0].outcome == "failed"
    assert sandbox.script("#" * (9 << 20)).status is None


def test_a_worker_that_was_killed_is_replaced() -> None:
    sandbox = Sandbox(SandboxSettings(seconds=30, workers=1))
    for which in ("programs", "judges"):
        assert sandbox.script("print(1)").output == "1\n"
        [worker] = sandbox._idle
        server = getattr(worker, which)
        server.process.kill()
        server.process.wait()
    assert sandbox.script("print(2)").output == "2\n"
    sandbox.close()
