"""Contained calls of user code: a call cannot end the process, and its changes of the process are undone."""

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
import torch

from models.base.time_limit import within
from models.base.user_code.contain import UserCodeError, contained, file_of, leaving, restored
from models.base.user_code.state import differences, read_state

FILE = "/somewhere/mine.py"


def leaves(code: str) -> Callable[[], object]:
    return lambda: exec(compile(code, FILE, "exec"), {})


WAYS_TO_LEAVE = {
    "import sys; sys.exit(0)": r"called sys\.exit\(0\)",
    "import sys; sys.exit()": r"called sys\.exit\(\)",
    "raise SystemExit('no more')": r"called sys\.exit\('no more'\)",
    "exit(3)": r"called sys\.exit\(3\)",
    "raise KeyboardInterrupt": "raised KeyboardInterrupt",
    "raise GeneratorExit": "raised GeneratorExit",
    "import asyncio; raise asyncio.CancelledError": "raised CancelledError",
    "class Mine(BaseException): ...\nraise Mine('why')": "raised Mine: why",
    "import os; os._exit(0)": r"called os\._exit\(0\)",
    "import argparse; argparse.ArgumentParser().parse_args(['--nothing-like-it'])": r"called sys\.exit\(2\)",
}


@pytest.mark.parametrize("code", WAYS_TO_LEAVE)
def test_no_way_of_leaving_ends_more_than_the_call_and_the_error_names_the_file(code: str) -> None:
    with pytest.raises(UserCodeError, match=rf"^{FILE}, line \d+: {WAYS_TO_LEAVE[code]}$"):
        contained(FILE, leaves(code))


def test_an_error_raised_in_another_file_names_both(tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    code = compile("\nimport sys\nsys.exit(1)", str(other), "exec")
    with pytest.raises(UserCodeError, match=rf"^{FILE}: called sys.exit\(1\) \({other}, line 3\)$"):
        contained(FILE, lambda: exec(code, {}))


def test_exit_of_os_outside_of_a_contained_call_still_ends_the_process() -> None:
    script = "import os\nfrom models.base.user_code.contain import contained as call\ncall('mine.py', int)\nos._exit(7)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 7


def test_a_child_that_the_code_forks_may_leave_by_itself() -> None:
    def forks() -> int:
        child = os.fork()
        if child == 0:
            os._exit(5)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert contained(FILE, forks) == 5


def test_ordinary_errors_and_the_limit_of_time_pass_unchanged() -> None:
    with pytest.raises(ZeroDivisionError):
        contained(FILE, lambda: 1 / 0)
    for nested in (
        lambda: within(0.05, lambda: contained(FILE, lambda: time.sleep(10))),
        lambda: contained(FILE, lambda: within(0.05, lambda: time.sleep(10))),
    ):
        with pytest.raises(TimeoutError, match=r"longer than 0\.05 s"):
            nested()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_by_a_signal_passes_as_what_the_runs_handler_raises(number: signal.Signals) -> None:
    class Stopped(BaseException):
        pass

    def handler(number: int, frame: object) -> None:
        raise Stopped

    earlier = signal.signal(number, handler)
    try:
        with pytest.raises(Stopped):
            contained(FILE, lambda: signal.raise_signal(number))
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, earlier)


def test_an_interrupt_that_the_code_turns_into_an_exit_passes_too() -> None:
    def turned() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            sys.exit(0)

    with pytest.raises(SystemExit):
        contained(FILE, turned)


def test_leaving_is_contained_in_other_threads() -> None:
    seen: list[str] = []

    def work() -> None:
        try:
            contained(FILE, leaves("import sys; sys.exit(0)"))
        except UserCodeError as error:
            seen.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [f"{FILE}, line 1: called sys.exit(0)"]


def nesting() -> int:
    """Return the number of autocast contexts that this thread has entered and not left."""
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


CHANGES = {
    "os.chdir('/')": os.getcwd,
    "os.environ['MINE'] = '1'": lambda: dict(os.environ),
    "os.environ.pop('PATH')": lambda: dict(os.environ),
    "os.environ['PATH'] = ''": lambda: dict(os.environ),
    "torch.set_grad_enabled(False)": torch.is_grad_enabled,
    "torch.inference_mode(True).__enter__()": lambda: (torch.is_inference_mode_enabled(), torch.is_grad_enabled()),
    "torch.no_grad().__enter__()": torch.is_grad_enabled,
    "torch.set_default_dtype(torch.float64)": torch.get_default_dtype,
    "torch.set_default_device('meta')": torch.get_default_device,
    "torch.set_num_threads(torch.get_num_threads() + 1)": torch.get_num_threads,
    "torch.manual_seed(1)": lambda: (torch.initial_seed(), torch.get_rng_state().tolist()),
    "torch.rand(3)": lambda: torch.get_rng_state().tolist(),
    "torch.use_deterministic_algorithms(True)": torch.are_deterministic_algorithms_enabled,
    "torch.set_float32_matmul_precision('medium')": torch.get_float32_matmul_precision,
    "torch.autocast('cpu', torch.bfloat16).__enter__()": lambda: (torch.is_autocast_enabled("cpu"), nesting()),
    "torch.set_autocast_cache_enabled(False)": torch.is_autocast_cache_enabled,
    "random.seed(1)": random.getstate,
    "numpy.random.seed(1)": lambda: str(numpy.random.get_state()),
    "signal.signal(signal.SIGINT, signal.SIG_IGN)": lambda: signal.getsignal(signal.SIGINT),
    "signal.signal(signal.SIGTERM, lambda *a: None)": lambda: signal.getsignal(signal.SIGTERM),
    "signal.signal(signal.SIGALRM, lambda *a: None)": lambda: signal.getsignal(signal.SIGALRM),
    "signal.alarm(1)": lambda: signal.getitimer(signal.ITIMER_REAL)[0],
    "sys.argv.append('x')": lambda: list(sys.argv),
    "sys.setrecursionlimit(3000)": sys.getrecursionlimit,
    "sys.stdout = open(os.devnull, 'w')": lambda: sys.stdout,
    "sys.stderr = None": lambda: sys.stderr,
    "warnings.simplefilter('error')": lambda: list(warnings.filters),
    "socket.setdefaulttimeout(1)": socket.getdefaulttimeout,
    "logging.disable(50)": lambda: __import__("logging").root.manager.disable,
    "locale.setlocale(locale.LC_ALL, 'C')": lambda: __import__("locale").setlocale(__import__("locale").LC_ALL),
    "gc.disable()": __import__("gc").isenabled,
}
NAMES = "import os, sys, gc, torch, random, numpy, signal, warnings, socket, logging, locale\n"


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("code", CHANGES)
def test_what_a_call_changes_of_the_process_is_undone_whether_it_raises_or_not(code: str, raises: bool) -> None:
    read, random_before = CHANGES[code], random.getstate()
    before, whole = read(), read_state()
    owner = f"{FILE}{code}{raises}"
    if raises:
        with pytest.raises(ZeroDivisionError):
            contained(owner, leaves(f"{NAMES}{code}\n1 / 0"))
    else:
        contained(owner, leaves(f"{NAMES}{code}"))
    assert read() == before and random.getstate() == random_before
    assert not differences(whole, read_state())


def test_after_a_call_that_never_leaves_its_autocast_a_pass_uses_the_current_weights() -> None:
    """Torch caches cast weights until the outermost context is left. A stale cache would give 1.0 twice."""
    layer, outputs = torch.nn.Linear(1, 1, bias=False), []
    contained(FILE, leaves("import torch; torch.autocast('cpu', torch.bfloat16).__enter__()"))
    for weight in (1.0, 2.0):
        torch.nn.init.constant_(layer.weight, weight)
        with torch.autocast("cpu", torch.bfloat16):
            outputs.append(layer(torch.ones(1)).item())
    assert outputs == [1.0, 2.0]


def test_what_a_file_has_set_is_there_again_in_its_next_call_and_in_no_other_files() -> None:
    contained("a.py", leaves("import os; os.environ['MINE'] = 'a'; os.chdir('/')"))
    contained("b.py", leaves("import os; os.environ['MINE'] = 'b'"))
    seen = [contained(name, lambda: (os.environ.get("MINE"), os.getcwd())) for name in ("a.py", "b.py", "c.py")]
    assert seen == [("a", "/"), ("b", os.getcwd()), (None, os.getcwd())]


def test_random_numbers_of_a_file_are_those_that_it_would_draw_alone() -> None:
    random.seed(4)
    alone = [random.random() for _ in range(4)]
    random.seed(4)
    with_others = []
    for _ in range(4):
        with_others.append(contained("draws.py", random.random))
        contained("other.py", lambda: random.seed(0))
    assert with_others == alone
    assert random.random() == alone[0]


def test_torchs_numbers_go_on_within_a_round_and_follow_its_seed_into_the_next() -> None:
    def drawn() -> float:
        return contained("episode.py", lambda: torch.rand(1).item(), continues=True)

    torch.manual_seed(1)
    first = [drawn(), drawn()]
    torch.manual_seed(2)
    second = [drawn(), drawn()]
    torch.manual_seed(1)
    assert first == torch.rand(2).tolist() and first != second
    torch.manual_seed(2)
    assert second == torch.rand(2).tolist()


def test_a_limit_of_time_that_runs_survives_code_that_sets_an_alarm_of_its_own() -> None:
    reached: list[int] = []
    earlier = signal.signal(signal.SIGALRM, lambda *_: reached.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        contained("alarm.py", leaves("import signal; signal.signal(signal.SIGALRM, print); signal.alarm(0)"))
        time.sleep(0.5)
        assert reached
    finally:
        signal.signal(signal.SIGALRM, earlier)


def test_an_alarm_left_behind_by_the_code_ends_nothing() -> None:
    contained("alarm.py", leaves("import signal; signal.setitimer(signal.ITIMER_REAL, 0.05)"))
    time.sleep(0.1)


def test_where_an_engine_works_meanwhile_its_own_settings_of_torch_stay() -> None:
    with restored("engine.py", engine_works=True):
        torch.rand(1)
        state = torch.get_rng_state()
        os.chdir("/")
    assert os.getcwd() != "/" and torch.equal(torch.get_rng_state(), state)


def test_the_file_of_an_object_is_that_of_its_class() -> None:
    class Here:
        pass

    assert file_of(Here()) == __file__


def test_leaving_alone_changes_no_state() -> None:
    with leaving(FILE):
        random.random()
        drawn = random.getstate()
    assert random.getstate() == drawn
