"""Unmodified programs with OpenAI's client: a tool loop, a streaming chat and parallel calls are trained on."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from models.engines.engine import EngineSettings
from models.method.rollout import Rollout, parts_of
from models.parts.rewards.episodes.turn_rewards import TurnRewards
from models.parts.rollouts.program import ProgramRollouts
from tests.support.agent_programs import trained
from tests.support.agents import toy_policy
from tests.support.tiny_episodes import Listening
from tests.support.tiny_loops import SLOTS, run
from tests.support.tiny_resources import make_resources

PROGRAMS = Path(toy_policy.__file__).parent
NAMES = ("tool_loop", "streaming_chat", "parallel_calls")
CODEC = toy_policy.toy_codec()


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("openai")
    return toy_policy.save_toy(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def engine(start: Path) -> Listening:
    return Listening(start, EngineSettings(precision="float32"), end=CODEC.ends)


def program(name: str, **settings: Any) -> ProgramRollouts:
    values: dict[str, Any] = {"prompts": 2, "group_size": 2, "max_tokens": 240, "call_tokens": 12, "seconds": 60.0}
    return ProgramRollouts(**{**values, "path": str(PROGRAMS / f"{name}.py"), **settings})


def draw(engine: Listening, name: str, log: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Rollout], list[Any]]:
    """Run a program; return its rollouts, and what each of its runs received."""
    monkeypatch.setenv("AGENT_LOG", str(log))
    source = program(name, group_size=6)
    made = source(make_resources(engine, codec=CODEC), toy_policy.problems_of(CODEC), 0)
    assert not {rollout.episode.cut for rollout in made} & {"error", "time"}
    return made, [json.loads(line) for line in (log / "log.jsonl").read_text().splitlines()]


def assert_recorded_as_drawn(engine: Listening, made: Sequence[Rollout], stop: str = "") -> list[str]:
    """Check that each drawn token, up to the stop text, is trained on once with the engine's log-prob.

    Return the text of each call, without the stop text.
    """
    drawn: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    log_probs, texts = 0.0, []
    for ask, generated in engine.asked:
        assert generated.log_probs is not None
        words = [CODEC.tokenizer.decode([token]) for token in generated.tokens]
        count = words.index(stop) + 1 if stop in words else len(words)
        drawn.append((tuple(ask.prompt), generated.tokens[:count]))
        log_probs += float(generated.log_probs[:count].sum())
        (text,) = CODEC.text([generated.tokens[:count]])
        texts.append(text.removesuffix(stop) if stop else text)
    parts = parts_of(made)
    assert sorted(drawn) == sorted(call for rollout in parts for call in trained(rollout))
    recorded = sum(
        float(rollout.behaviour_log_probs.sum()) for rollout in parts if rollout.behaviour_log_probs is not None
    )
    assert recorded == pytest.approx(log_probs, abs=1e-3)
    return texts


def _arguments(text: str) -> list[str]:
    return re.findall(r'"arguments":(.*?)}</tool_call>', text)


@pytest.mark.rotating(of=6)
def test_a_tool_loop_receives_the_calls_that_were_drawn_and_continues_from_their_ids(
    engine: Listening, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, logs = draw(engine, "tool_loop", tmp_path, monkeypatch)
    texts = assert_recorded_as_drawn(engine, made)
    received = [reply for log in logs for reply in log]
    assert any(message["tool_calls"] for message, _ in received)
    for message, finish in received:
        calls = [call["function"]["arguments"] for call in message["tool_calls"] or []]
        assert finish in (("tool_calls", "length") if calls else ("stop", "length"))
        whole = [text for text in texts if text.startswith(message["content"] or "")]
        assert any([*_arguments(text)] == calls if calls else text == message["content"] for text in whole)
    long = [rollout for rollout in parts_of(made) if len(rollout.episode.turns) > 1]
    assert long, "a conversation with results is one sequence"
    between = [
        str(CODEC.tokenizer.decode(list(rollout.completion[first.stop : second.start])))
        for rollout in long
        for first, second in zip(rollout.episode.turns, rollout.episode.turns[1:], strict=False)
    ]
    assert all(text.startswith("<|im_start|> user") and text.endswith("assistant") for text in between)


@pytest.mark.rotating(of=6)
def test_a_streaming_chat_receives_the_text_before_the_stop_by_token(
    engine: Listening, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, logs = draw(engine, "streaming_chat", tmp_path, monkeypatch)
    texts = assert_recorded_as_drawn(engine, made, "!")
    received = [reply for log in logs for reply in log]
    assert sorted("".join(pieces) for pieces, _, _ in received) == sorted(texts)
    assert {finish for _, finish, _ in received} <= {"stop", "length"}
    assert sum(tokens for _, _, tokens in received) == sum(rollout.trained_tokens for rollout in parts_of(made))
    assert max(len(pieces) for pieces, _, _ in received) > 3
    stopped = [ask for ask, generated in engine.asked if CODEC.tokenizer.decode([generated.tokens[-1]]) == "!"]
    assert stopped, "the engine ends a completion at a token that is the stop text"


@pytest.mark.rotating(of=6)
def test_parallel_calls_of_a_prompt_are_drawn_apart_and_are_branches_of_an_episode(
    engine: Listening, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, logs = draw(engine, "parallel_calls", tmp_path, monkeypatch)
    texts = assert_recorded_as_drawn(engine, made, "!")
    assert sorted(text for log in logs for text in log) == sorted(texts)
    assert len({(tuple(ask.prompt), ask.seed) for ask, _ in engine.asked}) == len(engine.asked) == 48
    assert any(log[0] != log[1] for log in logs)
    assert all(len(rollout.episode.parts) >= 3 for rollout in made)


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("name", NAMES)
def test_two_rounds_of_training_on_a_program_change_the_weights(name: str, start: Path, tmp_path: Path) -> None:
    slots = replace(SLOTS, rollouts=program(name, group_size=4), rewards=[TurnRewards()])
    learner = toy_policy.learner_of(start)
    before = {key: value.clone() for key, value in learner.policy.state_dict().items()}
    _, diary = run(
        start, tmp_path, slots=slots, codec=CODEC, schedule=toy_policy.SCHEDULE, learner=learner,
        problems=toy_policy.problems_of(CODEC),
    )  # fmt: skip
    assert len(diary.metrics) == 2
    assert any(not torch.equal(value, before[key]) for key, value in learner.policy.state_dict().items())


@pytest.mark.thorough
def test_the_reward_of_a_tool_loop_rises(start: Path, tmp_path: Path) -> None:
    slots = replace(SLOTS, rollouts=program("tool_loop", group_size=12), rewards=[TurnRewards()], select=[])
    _, diary = run(
        start, tmp_path, slots=slots, codec=CODEC, schedule=replace(toy_policy.SCHEDULE, rounds=12),
        learner=toy_policy.learner_of(start), problems=toy_policy.problems_of(CODEC),
    )  # fmt: skip
    rewards = [diary.metrics[number]["reward/total"] for number in sorted(diary.metrics)]
    assert sum(rewards[-6:]) / 6 > sum(rewards[:3]) / 3 + 0.15, rewards


FAULTS = """
import json, socket, urllib.error, urllib.parse, urllib.request

def call(base_url, api_key, body):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Authorization": "Bearer " + api_key}
    request = urllib.request.Request(base_url + "/chat/completions", content, headers)
    try:
        return urllib.request.urlopen(request, timeout=60).status, ""
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]["message"]

def run(task, base_url, api_key):
    messages = [{"role": "user", "content": task["prompt"]}]
    wrong = [{"tools": [3]}, {"tool_choice": "always"}, {"stop": list("abcde")}, {"stream": 1}]
    answers = [call(base_url, api_key, {"messages": messages, **fields}) for fields in wrong]
    for depth in (300, 900, 980, 100_000):
        tool = b'{"type": "function", "function": {"name": "a", "parameters": ' + b'{"a":' * depth + b"1" + b"}" * depth
        body = b'{"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "tools": [' + tool + b"}}]}"
        assert call(base_url, api_key, body)[0] in (200, 400)
    answers.append(call(base_url, api_key, b'{"messages": [{"role": "user", "content": "\\\\ud800"}]}'))
    assert [status for status, _ in answers] == [400] * 5, answers
    assert all(text and "\\n" not in text for _, text in answers)
    address = urllib.parse.urlsplit(base_url)
    content = json.dumps({"messages": messages, "stream": True, "n": 4}).encode()
    with socket.create_connection((address.hostname, address.port)) as connection:
        head = f"POST {address.path}/chat/completions HTTP/1.1\\r\\nHost: x\\r\\nAuthorization: Bearer {api_key}\\r\\n"
        connection.sendall(f"{head}Content-Length: {len(content)}\\r\\n\\r\\n".encode() + content)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\\1\\0\\0\\0\\0\\0\\0\\0")
        if task["id"] == "p0":
            assert connection.recv(40).startswith(b"HTTP/1.1 200")
    status, _ = call(base_url, api_key, {"messages": messages})
    return {"reward": float(status == 200)}
"""


def test_wrong_requests_and_a_client_that_leaves_a_stream_end_nothing(
    engine: Listening, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "faults.py").write_text(FAULTS)
    source = program("", path=str(tmp_path / "faults.py"))
    made = source(make_resources(engine, codec=CODEC), toy_policy.problems_of(CODEC), 0)
    assert [rollout.episode.cut for rollout in made if rollout.episode.cut in ("error", "time")] == []
    assert {rollout.episode.turns[-1].reward for rollout in made} == {1.0}
    assert_recorded_as_drawn(engine, made)
    assert "Traceback" not in capfd.readouterr().err
