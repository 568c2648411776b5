"""Process-wide state that user code can change, read as one mapping and written back key by key.

    ("cwd", "")             /work           ("environ", "LANG")     C.UTF-8
    ("signal", 14)          SIG_DFL         ("torch", "dtype")      torch.float32

Only differences are written, so that a call that changes nothing costs two readings (0.1 to 0.3 ms each). Libraries are
read only if they are imported already. State that no process can restore is not included: memory of other modules,
threads, monkey-patched functions.
"""

from __future__ import annotations

import gc
import locale
import logging
import os
import random
import signal
import socket
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

Key = tuple[str, Any]
State = Mapping[Key, Any]
ABSENT = object()
"""Value for a key that a state does not have, such as an environment variable that is not set."""
_SIGNALS = [
    getattr(signal, f"SIG{name}")
    for name in "HUP INT QUIT USR1 USR2 PIPE ALRM TERM CHLD CONT TSTP TTIN TTOU VTALRM PROF WINCH".split()
]
"""Signals that programs use; without the real-time signals, one of which is the run's own."""


def read_state() -> dict[Key, Any]:
    """Read the current state, as this thread sees it."""
    state: dict[Key, Any] = {(kind, ""): read() for kind, (read, _) in _PLAIN.items()}
    state |= {("environ", name): value for name, value in os.environ.items()}
    state |= {("signal", number): signal.getsignal(number) for number in _SIGNALS}
    if (torch := sys.modules.get("torch")) is not None and hasattr(torch, "get_rng_state"):
        state |= {("torch", name): read() for name, (read, _) in _of_torch(torch).items()}
    if (numpy := sys.modules.get("numpy")) is not None and hasattr(numpy, "random"):
        state["numpy random", ""] = _Numbers(numpy.random.get_state()[:3])
    return state


def differences(earlier: State, later: State) -> dict[Key, Any]:
    """Return the keys in which two states differ, with their values in `earlier`; ABSENT if it has none.

    A library that was imported between the two has no earlier state, and is left out.
    """
    changed = {}
    for key in earlier.keys() | later.keys():
        if key in earlier and key in later:
            if not _same(earlier[key], later[key]):
                changed[key] = earlier[key]
        elif key[0] == "environ":
            changed[key] = earlier.get(key, ABSENT)
    return changed


def write_state(changes: State) -> None:
    """Write the values of a state; those that the system refuses, such as a deleted folder, are skipped."""
    for key, value in changes.items():
        kind, name = key
        with suppress(OSError, ValueError, TypeError, RuntimeError):
            if kind == "environ":
                os.environ.pop(name, None) if value is ABSENT else os.environ.__setitem__(name, value)
            elif kind == "signal":
                signal.signal(name, value)
            elif kind == "torch":
                _of_torch(sys.modules["torch"])[name][1](value)
            elif kind == "numpy random":
                sys.modules["numpy"].random.set_state(value.state)
            else:
                _PLAIN[kind][1](value)


class _Numbers:
    """The state of numpy's generator, which holds an array, with an equality."""

    def __init__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def __eq__(self, other: object) -> bool:
        mine, theirs = self.state, getattr(other, "state", None)
        return theirs is not None and mine[2] == theirs[2] and mine[1].tobytes() == theirs[1].tobytes()

    __hash__ = None  # type: ignore[assignment]


def _same(value: Any, other: Any) -> bool:
    if value is other:
        return True
    equal = getattr(value, "equal", None)  # a tensor
    return bool(equal(other) if equal is not None else value == other)


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was deleted
        return None


def _set_filters(filters: list[Any]) -> None:
    warnings.filters[:] = filters  # type: ignore[index]
    getattr(warnings, "_filters_mutated", lambda: None)()


def _set_logging(state: tuple[int, int, list[logging.Handler]]) -> None:
    logging.root.manager.disable, level, logging.root.handlers[:] = state
    logging.root.setLevel(level)


Access = tuple[Callable[[], Any], Callable[[Any], Any]]

_PLAIN: dict[str, Access] = {
    "cwd": (_folder, lambda folder: None if folder is None else os.chdir(folder)),
    "argv": (lambda: list(sys.argv), lambda words: setattr(sys, "argv", list(words))),
    "stdin": (lambda: sys.stdin, lambda stream: setattr(sys, "stdin", stream)),
    "stdout": (lambda: sys.stdout, lambda stream: setattr(sys, "stdout", stream)),
    "stderr": (lambda: sys.stderr, lambda stream: setattr(sys, "stderr", stream)),
    "excepthook": (lambda: sys.excepthook, lambda hook: setattr(sys, "excepthook", hook)),
    "recursion limit": (sys.getrecursionlimit, sys.setrecursionlimit),
    "warnings filters": (lambda: list(warnings.filters), _set_filters),
    "showwarning": (lambda: warnings.showwarning, lambda show: setattr(warnings, "showwarning", show)),
    "logging": (lambda: (logging.root.manager.disable, logging.root.level, list(logging.root.handlers)), _set_logging),
    "socket timeout": (socket.getdefaulttimeout, socket.setdefaulttimeout),
    "locale": (lambda: locale.setlocale(locale.LC_ALL), lambda name: locale.setlocale(locale.LC_ALL, name)),
    "garbage collection": (gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
    "random": (random.getstate, random.setstate),
}
"""Kind -> functions that read and write it."""
_TORCH: dict[int, dict[str, Access]] = {}


def _of_torch(torch: Any) -> dict[str, Access]:
    """Return access to the state that torch keeps for the process or the thread, by name."""
    if id(torch) in _TORCH:
        return _TORCH[id(torch)]

    def set_device(device: Any) -> None:
        torch.set_default_device(None)
        if torch.get_default_device() != device:
            torch.set_default_device(device)

    def set_inference(on: bool) -> None:
        torch.inference_mode(on).__enter__()  # a guard of the caller's cannot be left from here; this one overrides it

    def cuda_generators() -> list[Any] | None:
        return [state.tolist() for state in torch.cuda.get_rng_state_all()] if torch.cuda.is_initialized() else None

    def set_cuda_generators(states: list[Any] | None) -> None:
        if states is not None:
            torch.cuda.set_rng_state_all([torch.tensor(state, dtype=torch.uint8) for state in states])

    def autocast_nesting() -> int:
        torch.autocast_increment_nesting()
        return int(torch.autocast_decrement_nesting())

    def set_autocast_cache(state: tuple[int, bool]) -> None:
        # Torch drops the weights that it has cast when the outermost autocast is left. With a context that was never
        # left, all later passes would use the weights of the first one.
        nesting, enabled = state
        while autocast_nesting() < nesting:
            torch.autocast_increment_nesting()
        while autocast_nesting() > nesting:
            torch.autocast_decrement_nesting()
        torch.set_autocast_cache_enabled(enabled)
        torch.clear_autocast_cache()

    _TORCH[id(torch)] = {
        "inference mode": (torch.is_inference_mode_enabled, set_inference),
        "gradients": (torch.is_grad_enabled, torch.set_grad_enabled),
        "dtype": (torch.get_default_dtype, torch.set_default_dtype),
        "device": (torch.get_default_device, set_device),
        "threads": (torch.get_num_threads, torch.set_num_threads),
        "anomaly": (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
        "deterministic": (
            lambda: (
                torch.are_deterministic_algorithms_enabled(),
                torch.is_deterministic_algorithms_warn_only_enabled(),
            ),
            lambda on: torch.use_deterministic_algorithms(on[0], warn_only=on[1]),
        ),
        "matmul": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        "autocast": (
            lambda: [(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda")],
            lambda kinds: [
                (torch.set_autocast_enabled(kind, on), torch.set_autocast_dtype(kind, dtype))
                for kind, (on, dtype) in zip(("cpu", "cuda"), kinds, strict=True)
            ],
        ),
        "autocast cache": (lambda: (autocast_nesting(), torch.is_autocast_cache_enabled()), set_autocast_cache),
        "random": (torch.get_rng_state, torch.set_rng_state),
        "cuda random": (cuda_generators, set_cuda_generators),
    }  # fmt: skip
    return _TORCH[id(torch)]
