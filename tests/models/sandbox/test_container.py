"""The sandbox in containers, with a stand-in for docker and, where a real engine answers, with that engine."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from models.base.errors import UserError
from models.sandbox import container
from models.sandbox.container import ContainedServer, ContainerSandbox, container_command
from models.sandbox.engines import choose_engine, engine_lines
from models.sandbox.inside.bridge import SocketBridge
from models.sandbox.interface import Program
from models.sandbox.sandbox import Sandbox
from models.sandbox.settings import SandboxSettings
from models.sandbox.shared import missing_programs, shared_sandbox
from tests.support import container_engine
from tests.support.compiler_sandbox import compiler_sandbox
from tests.support.container_image import real_engine
from tests.support.sandbox_attacks import CALLS, HARM, HONEST, LIES, OUTSIDE, PROCESSES, TESTS

CHECK = "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(5) == 6\n"
IMAGE = "python:3.11-slim"
CONTAINED = SandboxSettings(runner="container", seconds=30, seconds_together=60, workers=1, output_kb=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a stand-in for docker, which is a skip if this machine gives no namespaces."""
    with compiler_sandbox(SandboxSettings(workers=1)):
        made = tmp_path_factory.mktemp("engine")
        container_engine.install(made, "docker", [IMAGE])
    return made


@pytest.fixture
def containers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder of the stand-in's containers, with the stand-in as the only engine of this machine."""
    monkeypatch.setenv("PATH", str(folder))
    (folder / "containers" / "calls").write_text("")
    yield folder / "containers"
    for name in ("stopped", "hangs"):
        (folder / "containers" / name).unlink(missing_ok=True)


@pytest.fixture(scope="module")
def standin(folder: Path) -> Iterator[Sandbox]:
    """Return a sandbox in containers of the stand-in, which has started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder))
        sandbox = ContainerSandbox(CONTAINED)
        assert sandbox.layers.line.startswith(f"container of docker, {IMAGE}")
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="module")
def local() -> Iterator[Sandbox]:
    sandbox = Sandbox(replace(CONTAINED, runner="local"))
    yield sandbox
    sandbox.close()


def running(containers: Path) -> set[str]:
    return {path.name for path in containers.glob("rewardflow-sandbox-*")}


def gone(process: int) -> bool:
    """Return whether a process ends within some seconds."""
    for _ in range(100):
        if not Path(f"/proc/{process}").exists():
            return True
        time.sleep(0.05)
    return False


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize(
    "source, outcome, passed",
    [
        ("def f(x):\n    return x + 1\n", "passed", 2),
        ("def f(x):\n    return 6\n", "partly", 1),
        ("import os\ndef f(x):\n    os._exit(0)\n", "failed", 0),
        ("def f(x:\n", "uncompilable", 0),
    ],
)
def test_verdicts_through_a_standin_engine_are_those_of_the_local_sandbox(
    source: str, outcome: str, passed: int, standin: Sandbox, local: Sandbox
) -> None:
    [contained] = standin.judge([Program(source, CHECK, "f")])
    assert (contained.outcome, contained.passed, contained.cases) == (outcome, passed, 2)
    [here] = local.judge([Program(source, CHECK, "f")])
    assert (here.outcome, here.passed, here.cases) == (outcome, passed, 2)


def test_scripts_in_a_standin_engine_print_and_see_neither_this_machine_nor_the_previous_script(
    standin: Sandbox, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("secret")
    failed = standin.script("print(1)\nx = 3\nx / 0\n")
    assert (failed.output, failed.errors, failed.status) == ("1\n", "line 3: ZeroDivisionError: division by zero\n", 1)
    assert standin.script("open('left', 'w').write('x')\nimport os\nprint(os.listdir('.'))").output == "['left']\n"
    assert standin.script("import os\nprint(os.listdir('.'))").output == "[]\n"
    assert "Error" in standin.script(f"open({str(tmp_path / 'secret')!r})").errors
    assert (
        standin.script("import os\nprint(sorted(os.environ.get('SECRET', 'none')))").output == "['e', 'n', 'n', 'o']\n"
    )


def test_a_script_without_end_is_cut_and_the_next_one_runs(standin: Sandbox) -> None:
    cut = standin.script("while True:\n    print('x' * 100)")
    assert cut.cut and len(cut.output) == 1 << 10
    assert standin.script("print(2)").output == "2\n"
    large = "def f(x):\n    return 'y' * 3_000_000\n"
    tests = "assert f('x' * 3_000_000) == 'y' * 3_000_000\n"
    assert standin.judge([Program(large, tests, "f")])[0].outcome == "passed"


def test_expected_results_go_to_the_container_of_the_judges_alone(
    standin: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: dict[bool, bytes] = {True: b"", False: b""}
    send = SocketBridge._send

    def record(bridge: SocketBridge, kind: int, number: int, length: int, part: bytes = b"") -> None:
        sent[bridge._takes is None] += part
        send(bridge, kind, number, length, part)

    monkeypatch.setattr(SocketBridge, "_send", record)
    tests = "assert f('a visible input') == 'a secret result'\n"
    assert standin.judge([Program("def f(x):\n    return x\n", tests, "f")])[0].outcome == "partly"
    to_programs, to_judges = sent[True], sent[False]
    assert b"a visible input" in to_programs and b"a secret result" not in to_programs
    assert b"a secret result" in to_judges


@pytest.mark.rotating(of=6)
def test_a_container_of_a_standin_engine_that_stops_answering_is_killed(
    containers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("models.sandbox.sandbox._GRACE", 0.2)
    monkeypatch.setattr(container, "_END", 0.2)
    sandbox = ContainerSandbox(replace(CONTAINED, seconds=0.3, seconds_together=0.3))
    assert sandbox.layers.namespaces
    [worker] = sandbox._idle
    names = [server.name for server in (worker.programs, worker.judges) if isinstance(server, ContainedServer)]
    stopped = [int((containers / name).read_text()) for name in names]
    for number in stopped:  # bubblewrap's child is the fork server
        for child in Path(f"/proc/{number}/task/{number}/children").read_text().split():
            os.kill(int(child), signal.SIGSTOP)
    verdict = sandbox.judge([Program(HONEST, CHECK, "f")])[0]
    assert verdict.outcome == "failed" and "time" in verdict.why
    calls = (containers / "calls").read_text()
    assert all(f"rm --force {name}" in calls for name in names)
    assert not any((containers / name).exists() for name in names)
    assert all(gone(number) for number in stopped)
    sandbox.settings = CONTAINED
    assert sandbox.judge([Program(HONEST, CHECK, "f")])[0].outcome == "passed", "a new worker was started"
    sandbox.close()


@pytest.mark.rotating(of=6)
def test_a_worker_whose_container_ended_is_replaced(containers: Path) -> None:
    sandbox = ContainerSandbox(CONTAINED)
    for which in ("programs", "judges"):
        assert sandbox.script("print(1)").output == "1\n"
        [worker] = sandbox._idle
        server = getattr(worker, which)
        assert isinstance(server, ContainedServer)
        os.kill(int((containers / server.name).read_text()), signal.SIGKILL)
        server.process.wait(10)
    assert sandbox.script("print(2)").output == "2\n"
    sandbox.close()


def test_a_process_with_more_than_1024_open_files_starts_containers(containers: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1200:
        pytest.skip("this machine allows fewer than 1,200 open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1030)]
    try:
        sandbox = ContainerSandbox(CONTAINED)
        assert sandbox.script("print(6 * 7)").output == "42\n"
        sandbox.close()
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_commands_run_in_a_standin_engine(containers: Path) -> None:
    sandbox = ContainerSandbox(replace(CONTAINED, processes=8), compilers=True)
    ran = sandbox.command(["sh", "-c", "cat given; echo x > left; (sleep 30 &); echo done"], {"given": "text\n"})
    assert (ran.output, ran.status) == ("text\ndone\n", 0), ran
    assert sandbox.command(["sh", "-c", "ls"], {}).output == ""
    bomb = sandbox.command(["sh", "-c", "bomb() { bomb | bomb & }; bomb; sleep 60"], {})
    assert not bomb.late and bomb.status != 0
    assert sandbox.command(["echo", "well"], {}).output == "well\n"
    sandbox.close()


def test_tools_use_the_runner_of_their_settings(containers: Path) -> None:
    from models.agents.tools.python import Python

    settings = replace(CONTAINED, seconds=29)
    assert Python(sandbox=settings).call("print(6 * 7)") == "42"
    assert (containers / "calls").read_text().count("run --rm") == 2, "a container for programs, one for judges"
    shared_sandbox(settings).close()


def test_a_program_is_missing_where_commands_run(containers: Path) -> None:
    settings = replace(CONTAINED, processes=8)
    assert missing_programs(settings, ["sh", "no-such-compiler"]) == ["no-such-compiler"]
    assert missing_programs(SandboxSettings(), ["no-such-compiler"]) == ["no-such-compiler"]
    shared_sandbox(settings, compilers=True).close()


def test_the_command_line_isolates_and_mounts_nothing() -> None:
    words = container_command("docker", "name", "program", CONTAINED)
    line = " ".join(words)
    for expected in (
        "docker run --rm --interactive --name name", "--network none", "--ipc none", "--read-only", "--cap-drop ALL",
        "--security-opt no-new-privileges", "--memory 704m --memory-swap 704m", "--cpus 1", "--pids-limit 44",
        "--pull never", "--user 65534:65534", "nosuid,nodev,noexec,size=64m", f"--entrypoint python3 {IMAGE} -s",
    ):  # fmt: skip
        assert expected in line
    assert not {"-v", "--volume", "--mount", "--privileged", "--tty", "-t", "--env-file"} & set(words)
    assert "--tmpfs" not in container_command("docker", "name", "judge", CONTAINED)
    assert ",exec," in " ".join(container_command("docker", "name", "compiler", CONTAINED))
    assert "--read-only-tmpfs=false" in container_command("podman", "name", "program", CONTAINED)


def test_settings_choose_the_runner() -> None:
    assert type(shared_sandbox(SandboxSettings(seconds=17))) is Sandbox
    assert type(shared_sandbox(CONTAINED)) is ContainerSandbox
    assert shared_sandbox(CONTAINED) is shared_sandbox(replace(CONTAINED))


@pytest.mark.parametrize(
    "settings, line",
    [
        ({"image": "python:3.12"}, "sandbox.image: only the runner container reads it"),
        ({"engine": "podman"}, "sandbox.engine: only the runner container reads it"),
        ({"runner": "container", "unprotected": True}, "sandbox.unprotected: only the runner local reads it"),
        ({"runner": "container", "image": "--privileged"}, "is not the name of an image"),
    ],
)
def test_a_setting_that_the_runner_does_not_read_is_refused(settings: dict[str, object], line: str) -> None:
    with pytest.raises(UserError, match=line):
        SandboxSettings(**settings)  # type: ignore[arg-type]


def test_a_machine_without_an_engine_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert engine_lines() == []
    with pytest.raises(UserError, match="needs docker or podman, which are not installed; install it") as refused:
        _ = ContainerSandbox(CONTAINED).layers
    assert "\n" not in str(refused.value)
    with pytest.raises(UserError, match="needs podman, which is not installed"):
        choose_engine("podman")


def test_an_engine_that_does_not_answer_and_an_image_that_is_missing_are_refused(containers: Path) -> None:
    with pytest.raises(UserError, match=r"docker has no image other:1 \(.*No such image.*get it: docker pull other:1"):
        _ = ContainerSandbox(replace(CONTAINED, image="other:1")).layers
    assert engine_lines() == ["docker answers (stand-in version 1)"]
    (containers / "stopped").touch()
    with pytest.raises(UserError, match=r"docker does not answer .*Cannot connect.*start its service"):
        choose_engine(None)
    assert "Cannot connect" in engine_lines()[0]


@pytest.mark.rotating(of=6)
def test_a_container_that_does_not_start_is_refused_and_removed(
    containers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "_START", 0.5)
    monkeypatch.setattr(container, "_END", 0.2)
    before = running(containers)
    (containers / "hangs").touch()
    with pytest.raises(UserError, match="docker does not start a container of python"):
        _ = ContainerSandbox(CONTAINED).layers
    assert running(containers) <= before


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_a_real_engine_holds_every_attack(engine: str) -> None:
    limits = SandboxSettings(
        runner="container", engine=engine, image=real_engine(engine), seconds=1, seconds_together=2, memory_mb=256,  # type: ignore[arg-type]
        scratch_mb=32, workers=1,
    )  # fmt: skip
    sandbox = ContainerSandbox(limits)
    for name, source in {**OUTSIDE, **PROCESSES, **CALLS, **HARM, **LIES}.items():
        secret = source.replace("SECRET", __file__).replace("FOLDER", str(Path(__file__).parent)).replace("PORT", "1")
        verdict = sandbox.judge([Program(secret, TESTS, "f")])[0]
        assert verdict.outcome != "passed", (name, verdict)
        sandbox.settings = replace(limits, seconds=60, seconds_together=60)
        assert sandbox.judge([Program(HONEST, TESTS, "f")])[0].outcome == "passed", name
        sandbox.settings = limits
    sandbox.close()
