"""A teacher at an address: retries, refused replies, the key, and the log-probs.

The teacher is vLLM's own OpenAI server. Servers that misbehave are small ones of the standard library.
"""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from models.base import http_client as client
from models.base.errors import UserError
from models.learner.packing import Sequences
from models.policies import served_teacher
from models.policies.folder import save_model_folder
from models.policies.served_teacher import ServedTeacher, open_served
from tests.support.loopback_server import answering
from tests.support.tiny_loops import TOKENIZER
from tests.support.tiny_models import NO_VLLM, plain_log_probs, tiny_policy
from tests.support.tiny_resources import CODEC

SEQUENCES = Sequences([(3, 5, 7), (3, 5, 7), (6, 4)], [(6, 7, 1), (8, 1), (9, 10, 11, 1)])


def ids_of(text: str) -> list[int]:
    ids: list[int] = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    return ids


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "WAIT", 0.01)


def test_a_server_that_is_away_is_one_line_after_three_tries() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
    with pytest.raises(
        UserError, match=r"^teacher.address: .*/v1/completions does not answer as it should \(.*refused"
    ):
        ServedTeacher(address, "m")(SEQUENCES)


def test_a_server_that_fails_once_is_asked_again_and_one_that_refuses_is_not() -> None:
    seen = []

    def answer(path: str, body: Mapping[str, Any]) -> tuple[int, dict[str, list[dict[str, Any]]]]:
        seen.append(path)
        if len(seen) == 1:
            return 503, {}
        rows = [{"index": n, "logprobs": {"token_logprobs": [None] + [-1.0] * (len(row) - 1)}}
                for n, row in enumerate(body["prompt"])]  # fmt: skip
        return 200, {"choices": rows[::-1]}

    with answering(answer) as address:
        values = ServedTeacher(address, "m")(SEQUENCES)
    assert len(seen) == 2 and [row.tolist() for row in values] == [[-1.0] * len(ids) for ids in SEQUENCES.completions]
    seen.clear()

    def unwilling(path: str, body: object) -> tuple[int, object]:
        seen.append(path)
        return 400, {"error": "no echo"}

    with (
        answering(unwilling) as address,
        pytest.raises(UserError, match=r"does not answer as it should \(400 .*no echo"),
    ):
        ServedTeacher(address, "m")(SEQUENCES)
    assert len(seen) == 1


def test_a_server_that_does_not_tell_every_log_prob_is_refused() -> None:
    def answer(path: str, body: Mapping[str, Any]) -> tuple[int, dict[str, list[dict[str, int | None]]]]:
        return 200, {"choices": [{"index": n, "logprobs": None} for n in range(len(body["prompt"]))]}

    with answering(answer) as address, pytest.raises(UserError, match="does not return a log-prob for each token"):
        ServedTeacher(address, "m")(SEQUENCES)


@pytest.mark.parametrize(
    "value", [-(10**400), float("nan"), -1e39, "-1", True, [], {}], ids=lambda value: repr(value)[:9]
)
def test_a_log_prob_that_is_no_number_is_refused(value: object) -> None:
    def answer(path: str, body: Mapping[str, Any]) -> tuple[int, object]:
        rows = [
            {"index": n, "logprobs": {"token_logprobs": [value] * len(row)}} for n, row in enumerate(body["prompt"])
        ]
        return 200, {"choices": rows}

    with (
        answering(answer) as address,
        pytest.raises(
            UserError, match=r"^teacher\.address: .* does not return a log-prob for each token .* a finite number\)$"
        ),
    ):
        ServedTeacher(address, "m")(SEQUENCES)


@pytest.mark.parametrize("choice", [None, 3, "x", [], {"index": "0"}, {"index": None}, {"logprobs": [1]}])
def test_whatever_a_server_calls_a_choice_is_a_choice_or_one_line(choice: object) -> None:
    with (
        answering(lambda path, body: (200, {"choices": [choice] * len(body["prompt"])})) as address,
        pytest.raises(UserError, match=r"^teacher\.address: .* (did not answer each of 3|does not return a log-prob)"),
    ):
        ServedTeacher(address, "m")(SEQUENCES)


@pytest.mark.parametrize("listed", [None, 3, [], {}, {"data": None}, {"data": 3}, {"data": [3]}, {"data": [{"id": 3}]}])
def test_whatever_a_server_calls_its_models_is_a_list_of_names_or_none(listed: object) -> None:
    with (
        answering(lambda path, body: (200, listed)) as address,
        pytest.raises(UserError, match=r"^teacher\.model: .* has no model ; it has none$"),
    ):
        open_served(address, None, ids_of)


def test_a_model_that_the_server_has_not_is_refused_with_those_that_it_has() -> None:
    with (
        answering(lambda path, body: (200, {"data": [{"id": "big"}]})) as address,
        pytest.raises(UserError, match=r"^teacher\.model: .* has no model small; it has big"),
    ):
        open_served(address, "small", ids_of)


def test_a_server_of_another_tokenizer_is_refused() -> None:
    def answer(path: str, body: Mapping[str, Any] | None) -> tuple[int, dict[str, Any]]:
        return 200, {"data": [{"id": "big"}]} if path.endswith("/models") else {"tokens": [1, 2, 3]}

    with answering(answer) as address, pytest.raises(UserError, match="has another tokenizer than the policy"):
        open_served(address, None, ids_of)


def test_the_key_is_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(served_teacher.KEY_VARIABLE, "very-secret")
    with (
        answering(lambda path, body: (401, {"error": "no"})) as address,
        pytest.raises(UserError) as refused,
    ):
        open_served(address, None, ids_of)
    assert "very-secret" not in str(refused.value)


@contextmanager
def vllm_server(folder: Path, log: Path) -> Iterator[str]:
    """Start vLLM's OpenAI server on loopback with the model of `folder`, and end its whole process group afterwards."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--host",
               "127.0.0.1", "--port", str(port), "--enforce-eager", "--dtype", "float32", "--max-model-len", "64",
               "--served-model-name", "teacher"]  # fmt: skip
    with log.open("wb") as into:
        process = subprocess.Popen(command, stdout=into, stderr=into, env=os.environ | settings, start_new_session=True)
        try:
            address, until = f"http://127.0.0.1:{port}/v1", time.monotonic() + 300
            while True:
                assert process.poll() is None and time.monotonic() < until, log.read_text()[-2000:]
                try:
                    urllib.request.urlopen(f"{address}/models", timeout=5).close()
                    break
                except OSError:
                    time.sleep(1.0)
            yield address
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@NO_VLLM
@pytest.mark.thorough
def test_vllms_server_tells_the_log_probs_that_the_model_itself_has(tmp_path: Path) -> None:
    teacher = tiny_policy(torch.float32, seed=1, spread=3.0)
    save_model_folder(teacher, TOKENIZER, tmp_path / "teacher")
    with vllm_server(tmp_path / "teacher", tmp_path / "log") as address:
        served = open_served(address, None, ids_of)
        values = served(SEQUENCES)
        with pytest.raises(UserError, match="has another tokenizer than the policy"):
            open_served(address, "teacher", lambda text: [*ids_of(text), 5])
    assert served.model == "teacher" and CODEC.tokenizer is TOKENIZER
    for row, own in zip(values, plain_log_probs(teacher, SEQUENCES), strict=True):
        torch.testing.assert_close(row, own.detach(), rtol=1e-4, atol=1e-4)
