"""Tests of the server of a suite: what it answers is what the model computes."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from models.agents.gateway.server import Gateway
from models.base.http_answers import DIRECT
from models.engines.engine import EngineSettings
from models.engines.open_engine import open_engine
from models.text.encoding import Codec
from models.text.end_ids import ends_of_folder
from tasks.harness.running import _waiting
from tasks.harness.server import Policy


@contextmanager
def served(folder: Path, longest: int = 64, after: tuple[int, ...] = ()) -> Iterator[tuple[Any, Policy]]:
    """Serve a model. Yields a function that sends a request, and the policy."""
    codec = Codec(AutoTokenizer.from_pretrained(folder), True, ends_of_folder(folder))
    settings = EngineSettings(name="transformers")
    engine = open_engine(folder, settings, longest=longest + 1, end=codec.ends, seed=0, dtype=torch.float32)
    policy, ending = Policy(engine, codec, longest=longest, after_prompt=after), threading.Event()
    with Gateway() as gateway:

        def work() -> None:
            while not ending.is_set():
                if waiting := _waiting(gateway):
                    policy.answer(waiting)

        def ask(path: str, body: dict[str, Any]) -> Any:
            headers = {"Authorization": f"Bearer {gateway.key('s')}", "Content-Type": "application/json"}
            request = urllib.request.Request(f"{gateway.address}/{path}", json.dumps(body).encode(), headers)
            with DIRECT.open(request, timeout=60) as answer:
                return json.loads(answer.read())

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield ask, policy
        finally:
            ending.set()
            thread.join()
            engine.close()


def test_echo_has_the_log_probs_of_the_continuations_and_says_which_are_greedy(models: tuple[Path, Path]) -> None:
    model = AutoModelForCausalLM.from_pretrained(models[0], dtype=torch.float32).eval()
    context = [5, 6, 7, 8]
    greedy = model.generate(torch.tensor([context]), max_new_tokens=2, do_sample=False)[0, 4:].tolist()
    rows = [[*context, *greedy], [*context, greedy[0], (greedy[1] + 1) % 100], [*context[:3], 9, 10]]
    with served(models[0]) as (ask, policy):
        body = {"prompt": rows, "echo": True, "logprobs": 1, "max_tokens": 1, "context_lengths": [4, 4, 3]}
        choices = ask("completions", body)["choices"]
    assert not policy.refused
    for row, length, choice, is_greedy in zip(rows, [4, 4, 3], choices, [True, False, False], strict=True):
        with torch.no_grad():
            table = torch.log_softmax(model(torch.tensor([row])).logits[0].float(), -1)
        expected = [float(table[at - 1, row[at]]) for at in range(length, len(row))]
        values = choice["logprobs"]["token_logprobs"]
        assert values[length:-1] == pytest.approx(expected, abs=1e-4) and len(values) == len(row) + 1
        tops = choice["logprobs"]["top_logprobs"][length:-1]
        same = all(value == max(top.values()) for value, top in zip(values[length:-1], tops, strict=True))
        assert same == is_greedy


def test_a_completion_is_cut_at_the_first_stop_and_a_prefix_of_the_policy_follows_every_prompt(
    models: tuple[Path, Path],
) -> None:
    prompt = [5, 6, 7, 8]
    with served(models[0]) as (ask, _):
        whole = ask("completions", {"prompt": [prompt], "max_tokens": 12})["choices"][0]["text"]
        stop = whole[3:5]
        cut = ask("completions", {"prompt": [prompt], "max_tokens": 12, "stop": [stop, "never"]})["choices"][0]
        longer = ask("completions", {"prompt": [[*prompt, 9]], "max_tokens": 6})["choices"][0]["text"]
    assert cut["text"] == whole[: whole.find(stop)] and cut["finish_reason"] == "stop"
    with served(models[0], after=(9,)) as (ask, _):
        assert ask("completions", {"prompt": [prompt], "max_tokens": 6})["choices"][0]["text"] == longer


def test_conversations_are_answered_in_the_chat_template(models: tuple[Path, Path]) -> None:
    with served(models[0], longest=200) as (ask, policy):
        body = {"messages": [{"role": "user", "content": "2 + 2"}], "max_tokens": 5, "temperature": 0}
        answer = ask("chat/completions", body)
    choice = answer["choices"][0]
    assert choice["message"]["role"] == "assistant" and answer["usage"]["completion_tokens"] == policy.tokens <= 5


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"prompt": [[1] * 60], "max_tokens": 30}, "exceed the room of 64"),
        ({"prompt": "text"}, "token ids are wanted"),
        ({"prompt": [[1, 2]], "repetition_penalty": 1.1}, "repetition_penalty of a generation is not supported"),
        ({"prompt": [[1, 2]], "echo": True}, "context_lengths"),
        ({"prompt": [[1, 2]], "echo": True, "context_lengths": [2]}, "one token each or more"),
        ({"prompt": [[1, 2]], "max_tokens": 2, "temperature": -1}, "temperature is -1"),
    ],
)
def test_a_request_that_cannot_be_answered_is_refused_by_one_line(
    models: tuple[Path, Path], body: dict[str, Any], message: str
) -> None:
    with served(models[0]) as (ask, policy), pytest.raises(urllib.error.HTTPError, match="400"):
        ask("completions", body)
    assert message in policy.refused and "\n" not in policy.refused
