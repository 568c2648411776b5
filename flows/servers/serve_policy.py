"""Service of a registered policy by vLLM's OpenAI server, which ends when no request is in flight any more."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shlex
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from flows.servers.server_process import end, launch, wait_until_healthy
from flows.servers.server_record import HOST, Server
from models.base.errors import UserError
from models.base.http_answers import answer_here
from models.engines.attention_heads import check_heads
from models.engines.engine import has_vllm
from models.policies.use import PolicyUse, read_use
from tasks.registered.export import SERVING, recipe_of, served_folder, served_name
from tasks.tracking.recorded import VersionRecord
from tasks.tracking.registry import VersionInfo

START_SECONDS = 1800.0
"""Time limit for vLLM's start, seconds: on a GPU, compiling a large model takes minutes."""
PROGRESS_SECONDS = 10.0
"""Seconds between two progress lines while vLLM starts."""
EVERYWHERE = ("0.0.0.0", "::")
"""Host settings with which a server listens on all addresses of the machine."""


STAGES = (
    ("", "loading the code of vLLM"),
    ("non-default args", "starting the process of the engine"),
    ("Starting to load model", "loading the weights"),
    ("Loading weights took", "making the cache and warming up"),
    ("torch.compile", "compiling the model"),
    ("init engine", "opening the port"),
)
"""Stages of vLLM's start in order, each with the text in the log that marks its beginning."""

_PREFIX = r"(?m)^(?:\([^)\n]*\) )?(?:[A-Z]+ [\d-]+ [\d:]+ )?(?:\[[^\]\n]*\] )?"
"""Prefix that vLLM writes before a line of its log: process, level, time and place in the code."""


@dataclass(frozen=True)
class PolicyEndpoint:
    """Address and options for serving a policy."""

    host: str = HOST
    port: int = 8000
    drain: float = 60.0
    """Time limit for requests in flight when the server ends, seconds."""
    options: tuple[str, ...] = ()
    """Further options, passed to vLLM's server unchanged."""

    @property
    def address(self) -> str:
        """URL for a client on this machine."""
        host = HOST if self.host in EVERYWHERE else self.host
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


def serve(record: VersionRecord, home: Path, place: PolicyEndpoint) -> None:
    """Serve a version until Ctrl-C or SIGTERM; requests in flight are answered before it ends.

    Raises:
        UserError: vLLM cannot serve the version, vLLM is not installed, the port is in use, the memory is too small, or
            the server ended.
    """
    version = record.version
    if version is None:
        raise UserError(f"{record.label} is not a version; `rewardflow models` lists what can be served")
    if not has_vllm():
        raise UserError("vLLM is not installed, which serves policies: pip install '.[cpu]', or '.[cuda]' on a GPU")
    check_port(place.host, place.port)
    with served_folder(record, home) as folder:
        _serve_from(folder, record, version, home, place)


def _serve_from(folder: Path, record: VersionRecord, version: VersionInfo, home: Path, place: PolicyEndpoint) -> None:
    """Serve the model that was exported to a folder."""
    check_use(record.label, read_use(folder))
    check_heads(folder, record.label)
    on_cpu = _on_cpu(folder)
    if place.host != HOST:
        print(f"warning: {place.host} can be reached from elsewhere, and only VLLM_API_KEY asks who comes", flush=True)
    names = (served_name(version), version.name)
    options = [*_options(record, folder, on_cpu), *place.options]
    # Our options come last, so they win.
    ours = ["--model", str(folder), "--served-model-name", *names, "--host", place.host, "--port", str(place.port)]
    with _SignalCounter() as stop_signals:
        log = home / "logs" / f"serve-{place.port}.log"
        print(f"Starting vLLM with {record.label} on port {place.port} (log: {log}) ...", flush=True)
        server = _launch([*options, *ours, "--enable-server-load-tracking"], place, log, home, on_cpu)
        try:
            _run(server, place, names, stop_signals)
        finally:
            end({server.name: server}, home / SERVING)
    print("Ended.")


def check_use(label: str, use: PolicyUse) -> None:
    """Check that vLLM would sample from the policy that was evaluated.

    Raises:
        UserError: the policy is used with a second model, which vLLM leaves out.
    """
    if use.gated or use.mask_top_p < 1:
        second = "a gate" if use.gated else "a mask"
        raise UserError(
            f"{label} is used with {second} stored with it, which vLLM does not support: it would serve another "
            "policy than the one that was evaluated"
        )


def check_port(host: str, port: int) -> None:
    """Check that a server could listen there now; if two start at once, vLLM refuses the second.

    Raises:
        UserError: the port is in use, or the address does not belong to this machine.
    """
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ignore connections that have ended
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise UserError(f"port {port} is in use: choose another with --port") from None
            raise UserError(f"cannot listen on {host}, port {port}: {error.strerror}") from None


def curl(address: str, name: str) -> str:
    """Return a shell command that sends a request to a served policy."""
    body = json.dumps({"model": name, "messages": [{"role": "user", "content": "1 + 2 ="}], "max_tokens": 64})
    key = ' -H "Authorization: Bearer $VLLM_API_KEY"' if os.environ.get("VLLM_API_KEY") else ""
    return f"curl {address}/v1/chat/completions -H 'Content-Type: application/json'{key} -d {shlex.quote(body)}"


class _SignalCounter:
    """Counter of Ctrl-C and SIGTERM while the context is entered."""

    times = 0

    def __enter__(self) -> _SignalCounter:
        self.before = {number: signal.signal(number, self._count) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _count(self, number: int, frame: FrameType | None) -> None:
        self.times += 1


def stage(log: str) -> str:
    """Describe the stage of a starting server from its log, with its number among all stages."""
    text = Path(log).read_text(encoding="utf-8", errors="replace")
    reached = max(number for number, (marker, _) in enumerate(STAGES) if marker in text)
    return f"{STAGES[reached][1]} ({reached + 1} of {len(STAGES)})"


class _Starting:
    """Check whether a server is up; prints its stage every few seconds."""

    def __init__(self, server: Server, stop_signals: _SignalCounter) -> None:
        self.server, self.stop_signals, self.began, self.lines = server, stop_signals, time.monotonic(), 0

    def __call__(self) -> bool:
        if self.stop_signals.times:
            return True
        seconds = time.monotonic() - self.began
        if seconds > PROGRESS_SECONDS * (self.lines + 1):
            self.lines += 1
            print(f"  {seconds:.0f} s: {stage(self.server.log)}", flush=True)
        return _get(self.server, "/health") is not None


def _run(server: Server, place: PolicyEndpoint, names: Sequence[str], stop_signals: _SignalCounter) -> None:
    wait_until_healthy(server, _Starting(server, stop_signals), START_SECONDS, _cause)
    if stop_signals.times:
        return
    print(f"\n  {names[0]}, also called {names[1]}: {server.address}/v1\n\n{curl(server.address, names[1])}\n")
    print("Ctrl-C or SIGTERM ends it when what is in flight is answered.", flush=True)
    while server.process() and not stop_signals.times:
        time.sleep(0.2)
    if not stop_signals.times:
        raise UserError(f"vLLM ended by itself: {_cause(server.log)} (log: {server.log})")
    _drain(server, place.drain, stop_signals)


def _drain(server: Server, seconds: float, stop_signals: _SignalCounter) -> None:
    """Wait until no request is in flight, for at most `seconds`, or until a further signal.

    vLLM's own shutdown is not enough: it drops requests in flight, and may wait for their connections for ever.
    """
    deadline, before = time.monotonic() + seconds, stop_signals.times
    announced = False
    while server.process() and (count := _in_flight(server)) != 0 and stop_signals.times == before:
        if time.monotonic() > deadline:
            number = "an unknown number of" if count is None else count
            print(f"{number} requests in flight are dropped: {seconds:.0f} s are over", flush=True)
            return
        if count is not None and not announced:
            print(
                f"Waiting for {count} requests in flight, {seconds:.0f} s at most; Ctrl-C again drops them", flush=True
            )
            announced = True
        time.sleep(0.1)


def _in_flight(server: Server) -> int | None:
    """Return the number of requests that are not completely answered; None if the server does not report it."""
    try:
        load = json.loads(_get(server, "/load") or b"null")
    except (ValueError, RecursionError):
        return None
    count = load.get("server_load") if isinstance(load, dict) else None
    return count if isinstance(count, int) else None


def _get(server: Server, path: str) -> bytes | None:
    return answer_here(server.address + path)


def _launch(arguments: Sequence[str], place: PolicyEndpoint, log: Path, home: Path, on_cpu: bool) -> Server:
    # As in the engine: on a CPU no core is reserved, so that others, such as the server to be replaced, can use it.
    # One process computes and schedules: each further process would first load all of vLLM's code again.
    cpu = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    quiet = {"VLLM_NO_USAGE_STATS": "1", **(cpu if on_cpu else {})}
    command = [sys.executable, "-m", "flows.servers.vllm_server", str(os.getpid()), *arguments]
    server = launch("vLLM", command, place.port, log, {**quiet, **os.environ}, cwd=home)
    return replace(server, address=place.address)


def _options(record: VersionRecord, folder: Path, on_cpu: bool) -> list[str]:
    """Return vLLM's options for this version on this machine."""
    trusted = (recipe_of(record).get("policy") or {}).get("trust_remote_code")
    return [*(["--trust-remote-code"] if trusted else []), *(cpu_options() if on_cpu else [])]


def cpu_options() -> list[str]:
    """Return vLLM's options for a CPU; a user's options follow and win, such as `--no-enforce-eager`.

    The model is not compiled: that takes minutes at every start, and few answers are long enough to make up for it.
    """
    from models.engines.vllm_engine import CACHE_MOST

    # If unset, the cache takes nearly all memory, and leaves none to the server that replaces this one.
    cache = ["--max-model-len", "auto", "--kv-cache-memory-bytes", str(CACHE_MOST)]
    return ["--dtype", "float32", *cache, "--enforce-eager", "--distributed-executor-backend", "uni"]


def _on_cpu(folder: Path) -> bool:
    """Whether vLLM computes on the CPU here; if so, checks that the memory holds the weights and the cache.

    Raises:
        UserError: they do not fit.
    """
    import torch

    if torch.cuda.is_available():
        return False
    import psutil

    from models.base.weights_header import tensor_shapes
    from models.engines.vllm_engine import CACHE_MOST

    shapes = [shape for file in folder.glob("*.safetensors") for shape in tensor_shapes(file).values()]
    needed = 4 * sum(map(math.prod, shapes)) + CACHE_MOST
    free = psutil.virtual_memory().available
    if needed > free:
        raise UserError(
            f"{folder.name}: float32 weights and cache take {needed / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB "
            "are free"
        )
    return True


def _cause(log: str) -> str:
    """Return the error that ended vLLM: the first that its processes logged, as later ones only follow from it."""
    text = Path(log).read_text(encoding="utf-8", errors="replace")
    pattern = (
        r"(?m)^((?:[\w.]*(?:Error|Exception)): .+(?:\n {2}\S.+)?|error: .+)$"  # pydantic gives details on a second line
    )
    errors = [" ".join(error.split()) for error in re.findall(pattern, re.sub(_PREFIX, "", text))]
    if any("Address already in use" in error for error in errors):
        return "another server took its port meanwhile; choose another with --port"
    return errors[0][:300] if errors else _last_line(log)


def _last_line(log: str) -> str:
    """Return the last line of a log without vLLM's prefix."""
    text = Path(log).read_text(encoding="utf-8", errors="replace")
    lines = [line for line in text.splitlines() if line.strip() and "warn" not in line.lower()]
    return re.sub(_PREFIX, "", lines[-1])[:120] if lines else "no word yet"
