"""Tests of a served champion: chats are encoded as in training, a switch drops no request, no process is left."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
import torch
from running import DIRECT, ROOT, ask, free_port, shell, wait_for

from flows.servers import serve_policy
from flows.servers.serve_policy import check_port, check_use, cpu_options, curl, stage
from flows.servers.server_record import Server
from models.base.errors import UserError
from models.policies.folder import hash_folder, save_model_folder
from models.policies.use import PolicyUse
from models.text.encoding import Codec
from tasks.registered.recorded_recipe import log_recipe_settings
from tasks.tracking import aliases, registry, runs, tags
from tests.support.loopback_server import HALF_ANSWERS, HALF_REFUSALS, UNREADABLE_ANSWERS, sending
from tests.support.tiny_models import NO_VLLM, tiny_policy, word_tokenizer

SAMPLES = 192
"""Samples per request: an answer takes seconds, and is not complete when the server receives SIGTERM."""
SMALL = ("--", "--max-num-seqs", "8", "--kv-cache-memory-bytes", str(1 << 26))


@pytest.fixture
def home(new_store: Callable[[Path], Path], tmp_path: Path) -> Path:
    """Make a state folder with two versions of a policy that uses plain prompts. The first version is champion."""
    made = new_store(tmp_path / "home")
    for seed in (0, 1):
        folder = tmp_path / f"policy{seed}"
        save_model_folder(tiny_policy(torch.float32, seed), word_tokenizer(), folder)
        flow = runs.open_flow_run("e", "train e", {tags.GIT_COMMIT: "c" * 40})
        log_recipe_settings(
            flow, {"name": "e", "policy": {"base": None, "chat": False}}, tmp_path, tmp_path / "e.yaml", []
        )
        model = registry.log_model(runs.open_step_run(flow, "fine_tune"), folder, "policy", "text-generation")
        registry.register("e-policy", model, {tags.RUN: flow, tags.WEIGHTS_SHA256: hash_folder(folder)})
        runs.close_run(flow)
    aliases.promote("e-policy", 1, why="by hand")
    return made


@dataclass
class Serving:
    """A process of `rewardflow serve`."""

    process: subprocess.Popen[str]
    port: int
    log: Path

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def words(self) -> str:
        return self.log.read_text()

    def ready(self) -> bool:
        assert self.process.poll() is None, self.words()
        return "Ctrl-C or SIGTERM ends it" in self.words()

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)


def start(home: Path, version: str, *options: str) -> Serving:
    port = free_port()
    log = home / f"{port}.log"
    with log.open("w") as words:
        process = subprocess.Popen(
            [sys.executable, "-m", "flows.command_line", "serve", version, "--port", str(port), *options],
            cwd=home,
            env={**shell(), "REWARDFLOW_HOME": str(home), "PYTHONPATH": str(ROOT)},
            stdout=words,
            stderr=subprocess.STDOUT,
            text=True,
        )
    return Serving(process, port, log)


@pytest.fixture
def both(home: Path) -> Iterator[tuple[Serving, Serving]]:
    """Start the champion and the next version, and yield both when they are ready."""
    pair = (start(home, "champion", *SMALL), start(home, "2", *SMALL))
    try:
        for serving in pair:
            wait_for(f"version at {serving.port}", serving.ready)
        yield pair
    finally:
        for serving in pair:
            left = serving.family() if serving.process.poll() is None else []
            serving.process.kill()
            serving.process.wait()
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.kill()


def question(**more: Any) -> dict[str, Any]:
    return {"model": "e-policy", "messages": [{"role": "user", "content": "4 + 5 ="}], "max_tokens": 8, **more}


def chat(serving: Serving, **more: Any) -> Any:
    return ask(f"{serving.address}/v1/chat/completions", question(**more))


class Talk(threading.Thread):
    """A chat with a streamed answer. vLLM sends the headers as soon as the request is in progress."""

    def __init__(self, serving: Serving, samples: int) -> None:
        super().__init__()
        body = question(n=samples, max_tokens=50, ignore_eos=True, stream=True)
        self.request = urllib.request.Request(
            f"{serving.address}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        self.under_way = threading.Event()
        self.reasons: list[str] = []
        self.words = ""
        self.start()

    def run(self) -> None:
        with DIRECT.open(self.request, timeout=120) as answer:
            self.under_way.set()
            for line in filter(bytes.strip, answer):
                self.words = line.decode().removeprefix("data: ").strip()
                if self.words.startswith("{"):
                    reasons = [choice["finish_reason"] for choice in json.loads(self.words)["choices"]]
                    self.reasons += [reason for reason in reasons if reason]


@pytest.mark.slow
@pytest.mark.thorough
@NO_VLLM
def test_chats_are_the_trained_prompts_a_switch_drops_nothing_and_nothing_outlives_its_command(
    both: tuple[Serving, Serving],
) -> None:
    old, new = both
    pasted = next(line for line in old.words().splitlines() if line.startswith("curl "))
    answer = json.loads(subprocess.run(["bash", "-c", pasted], capture_output=True, text=True, check=True).stdout)
    assert answer["choices"][0]["message"]["role"] == "assistant"
    assert chat(old, return_token_ids=True)["prompt_token_ids"] == Codec(word_tokenizer()).prompts(["4 + 5 ="])[0]
    for serving, name in zip(both, ("e-policy-v1", "e-policy-v2"), strict=True):
        assert [model["id"] for model in ask(f"{serving.address}/v1/models")["data"]] == [name, "e-policy"]
    heard = {
        connection.laddr.ip
        for process in old.family()
        for connection in process.net_connections()
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == old.port
    }
    assert heard == {"127.0.0.1"}

    talks = [Talk(old, samples=SAMPLES) for _ in range(6)]
    for talk in talks:
        assert talk.under_way.wait(120)
    family = old.family()
    old.process.send_signal(signal.SIGTERM)
    assert chat(new)["choices"]  # clients now use the new server
    for talk in talks:
        talk.join(120)
        assert talk.reasons == ["length"] * SAMPLES and talk.words == "[DONE]"
    assert old.process.wait(60) == 0, old.words()
    assert "Waiting for 6 requests in flight" in old.words() and old.words().endswith("Ended.\n")
    assert [process for process in family if process.is_running() and process.status() != "zombie"] == []

    family = new.family()
    assert len(family) >= 2
    new.process.kill()  # it cannot handle SIGKILL
    new.process.wait()
    wait_for(
        "the end of a killed command's server",
        lambda: not [process for process in family if process.is_running() and process.status() != "zombie"],
    )


@pytest.mark.rotating(of=8)
@pytest.mark.slow
@NO_VLLM
def test_a_server_that_cannot_start_is_one_line_with_the_cause(home: Path) -> None:
    serving = start(home, "champion", "--", "--max-model-len", "1000000")
    assert serving.process.wait(180) == 1
    last = serving.words().splitlines()[-1]
    assert re.match(r"error: the vLLM server ended while starting: .*max_model_len", last), serving.words()


def test_on_a_cpu_nothing_is_compiled_unless_the_user_asks_for_it() -> None:
    assert "--enforce-eager" in cpu_options()
    arguments = pytest.importorskip("vllm.engine.arg_utils").AsyncEngineArgs
    parser = arguments.add_cli_args(pytest.importorskip("vllm.utils.argparse_utils").FlexibleArgumentParser())
    assert parser.parse_args(cpu_options()).enforce_eager
    assert not parser.parse_args([*cpu_options(), "--no-enforce-eager"]).enforce_eager


def test_what_a_server_does_while_it_starts_is_shown_by_its_log(tmp_path: Path) -> None:
    log, shown = tmp_path / "serve.log", []
    log.write_text("")
    for line in (
        "(APIServer pid=1) INFO 11-27 00:44:28 [api_utils.py:286] non-default args: {'port': 8731}",
        "(EngineCore pid=2) INFO 11-27 00:45:44 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: x",
        "(EngineCore pid=2) INFO 11-27 00:46:38 [cpu_model_runner.py:68] Starting to load model /models/policies...",
        "(EngineCore pid=2) INFO 11-27 00:46:45 [default_loader.py:501] Loading weights took 5.68 seconds",
        "(EngineCore pid=2) INFO 11-27 00:46:50 [core.py:402] init engine (profile, create kv cache) took 1.66 s",
    ):
        shown.append(stage(str(log)))
        log.write_text(f"{log.read_text()}{line}\n")
    assert [int(words.split("(")[1][0]) for words in (*shown, stage(str(log)))] == [1, 2, 2, 3, 4, 6]
    assert shown[0].startswith("loading the code of vLLM") and "weights" in shown[3]


def test_a_port_in_use_and_an_address_of_another_machine_are_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=rf"port {port} is in use: choose another with --port"):
            check_port("127.0.0.1", port)
        with pytest.raises(UserError, match=rf"port {port} is in use"):
            check_port("0.0.0.0", port)
    check_port("127.0.0.1", port)
    with pytest.raises(UserError, match=r"cannot listen on 192\.0\.2\.1"):
        check_port("192.0.2.1", port)


@pytest.mark.parametrize("use", [PolicyUse(gated=True), PolicyUse(mask_top_p=0.5)])
def test_a_policy_that_vllm_would_serve_as_another_is_refused(use: PolicyUse) -> None:
    check_use("e-policy version 1", PolicyUse(after_prompt=(4,), text="+"))
    with pytest.raises(UserError, match="which vLLM does not support"):
        check_use("e-policy version 1", use)


def test_the_command_that_is_printed_is_whole_in_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "a key")
    line = curl("http://127.0.0.1:8000", "it's")
    printed = subprocess.run(
        ["bash", "-c", f"printf '%s\\n' {line}"], capture_output=True, text=True, env=os.environ.copy(), check=True
    )
    words = printed.stdout.splitlines()
    assert "Authorization: Bearer a key" in words and json.loads(words[-1])["model"] == "it's"


@pytest.mark.parametrize(("answers", "asked", "last"), [
    ([None, b'{"server_load": 2}', None, b'{"server_load": 0}'], 4, "Waiting for 2 requests in flight"),
    ([None] * 9, 9, "an unknown number of requests in flight are dropped"),
])  # fmt: skip
def test_a_server_too_busy_to_say_what_is_in_flight_is_waited_for_and_asked_again(
    answers: list[bytes | None],
    asked: int,
    last: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    left, now = list(answers), iter(range(100))
    monkeypatch.setattr(serve_policy, "_get", lambda server, path: left.pop(0))
    monkeypatch.setattr(serve_policy, "time", SimpleNamespace(monotonic=lambda: float(next(now)), sleep=lambda _: None))
    server: Any = SimpleNamespace(process=lambda: True)
    serve_policy._drain(server, 8.0, cast(Any, SimpleNamespace(times=0)))
    assert len(answers) - len(left) == asked
    assert last in capsys.readouterr().out.splitlines()[-1]


SAYS_NOTHING = {**HALF_ANSWERS, **UNREADABLE_ANSWERS, **HALF_REFUSALS}


@pytest.mark.parametrize("reply", SAYS_NOTHING.values(), ids=SAYS_NOTHING)
def test_a_server_that_breaks_off_does_not_say_what_is_in_flight_and_the_drain_goes_on(reply: bytes) -> None:
    with sending(lambda path: reply) as address:
        assert serve_policy._in_flight(Server("vLLM", address, 1, 0.0, "log")) is None
