"""Replies at the gateway: calls of functions, stop texts and streams, made from drawn tokens."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from models.agents.gateway.answers import ProgramAnswer
from models.agents.gateway.program_request import read_request
from models.agents.gateway.replies import Reply, reply_of
from models.agents.gateway.token_texts import cut_at_stop, stop_ids, token_texts
from models.agents.gateway.tool_calls import parse_reply
from models.engines.engine import Generated
from tests.support.agents.tool_loop import TOOLS
from tests.support.agents.toy_policy import byte_codec, toy_codec

CODEC = byte_codec()
CALL = '<tool_call>\n{"name": "lookup", "arguments": {"key": "é"}}\n</tool_call>'
ARGUMENTS = '{"key": "é"}'


def reply(text: str, *, begun: str = "", ended: bool = True, **body: Any) -> Reply:
    """Return the reply to a request with tools for which the tokens of `text` were drawn."""
    ids = [*CODEC.inside([text])[0], *([CODEC.end] if ended else [])]
    generated = Generated(tuple(ids), torch.arange(len(ids), dtype=torch.float32), ended)
    messages = [{"role": "user", "content": "a"}]
    return reply_of(CODEC, generated, read_request({"messages": messages, "tools": TOOLS, **body}, chat=True), begun, 3)


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        (CALL, "", [ARGUMENTS]),
        (f"so: {CALL}\n{CALL} more", "so: ", [ARGUMENTS, ARGUMENTS]),
        (CALL.removesuffix("\n</tool_call>"), "", [ARGUMENTS]),
        ('{"name": "lookup", "parameters": {"key": "é"}}', "", [ARGUMENTS]),
        (' <|python_tag|>{"name":"lookup","parameters":{}}; {"name":"lookup","arguments":{}}', "", ["{}", "{}"]),
        (CALL.replace('{"key": "é"}', r'"{\"key\": 1}"'), "", ['{"key": 1}']),
        (CALL.replace('"é"', '"</tool_call>"'), "", ['{"key": "</tool_call>"}']),
    ],
)
def test_calls_are_read_as_the_policy_wrote_them(text: str, content: str, calls: list[str]) -> None:
    parsed = parse_reply(text, {"lookup"}, finished=True)
    assert parsed.content == content and [call.arguments for call in parsed.calls] == calls
    made = reply(text)
    assert [call.arguments for call in made.message.calls] == calls and made.choice.finish == "tool_calls"
    assert len({call.id for call in made.message.calls}) == len(calls)


@pytest.mark.parametrize(
    "text",
    [
        "", "so", "{}", "<tool_call>", f"{CALL} <tool_call>{{", CALL.replace("lookup", "delete"),
        CALL.replace('{"key": "é"}', "[1]"), CALL.replace('{"key": "é"}', '{"key": NaN}'),
        CALL.replace('{"key": "é"}', "[" * 100_000), CALL.replace('{"key": "é"}', "1" * 5000),
        CALL.replace('"é"}}', '"é"},}'), '{"name": "lookup", "parameters": {}} and so on', '{"name": "lookup"}',
        CALL.replace('"lookup"', '["lookup"]'), CALL.replace('{"key": "é"}', '"no object"'),
    ],
)  # fmt: skip
def test_a_malformed_call_stays_text(text: str) -> None:
    parsed = parse_reply(text, {"lookup"}, finished=True)
    assert parsed.content == text and not parsed.calls


def test_a_reply_without_its_end_has_only_closed_calls() -> None:
    assert not reply(CALL.removesuffix("</tool_call>"), ended=False).message.calls
    made = reply(CALL, ended=False)
    assert made.message.calls and made.choice.finish == "length"


def test_a_choice_of_tools_decides_which_calls_are_read() -> None:
    assert reply(CALL, tool_choice="none").message.text == CALL
    assert len(reply(CALL * 2, parallel_tool_calls=False).message.calls) == 1
    begun, rest = CALL[:12], CALL[12:]
    named = {"type": "function", "function": {"name": "lookup"}}
    made = reply(rest, begun=begun, tool_choice=named, stream=True)
    assert made.text == rest and "".join(made.choice.calls[0].pieces) == ARGUMENTS
    assert reply("so", begun=begun, tool_choice="required").message.text == f"{begun}so"


@pytest.mark.parametrize("text", ["", "a", "é✓😀 a", "a \ufffd b", "12é"])
def test_the_texts_of_tokens_are_the_text_and_no_character_is_split(text: str) -> None:
    for codec in (CODEC, toy_codec()):
        ids = [*codec.inside([text])[0], codec.end]
        texts = token_texts(codec, ids)
        assert len(texts) == len(ids) and "".join(texts) == codec.text([ids])[0] and texts[-1] == ""
    ids = CODEC.inside([text])[0]
    for end in range(1, len(ids)):  # completions that were cut, within a character too
        assert "".join(token_texts(CODEC, ids[:end])) == CODEC.text([ids[:end]])[0]


@pytest.mark.parametrize(
    ("texts", "stops", "cut"),
    [
        (["a", "b", "c"], ["x"], None),
        (["a", "b\n", "c"], ["\n"], (2, 2)),
        (["a", "bc", "d"], ["ab", "bcd"], (2, 0)),
        (["a", "b", "c"], ["bc", "b"], (2, 1)),
        (["a", "bcd"], ["cd", "b"], (2, 1)),
        (["", "aa", "a"], ["aaa"], (3, 0)),
    ],
)
def test_the_first_completed_stop_text_ends_a_completion(
    texts: Sequence[str], stops: Sequence[str], cut: tuple[int, int] | None
) -> None:
    assert cut_at_stop(texts, stops) == cut


def test_a_stop_text_ends_the_record_at_the_token_that_completes_it() -> None:
    made = reply("one é✓ two", stop="é✓")
    ids = CODEC.inside(["one é✓"])[0]
    assert list(made.tokens) == ids and made.text == "one é✓" and made.message.text == "one "
    assert made.log_probs is not None and made.log_probs.tolist() == list(range(len(ids)))
    assert made.finished and made.choice.finish == "stop"
    within = reply("so <tool_call>", stop=["ol_c", "tool"])
    assert within.message.text == "so <" and within.text == "so <tool"


def test_an_engine_is_given_every_token_that_contains_a_stop_text() -> None:
    codec = toy_codec()
    stops = stop_ids(codec, ["lookup"])
    assert len(stops) == 8 and all("lookup" in codec.tokenizer.decode([token]) for token in stops)
    assert stop_ids(CODEC, ["ab"]) == () == stop_ids(CODEC, [])


@pytest.mark.parametrize("log_probs", [False, True])
def test_the_events_of_a_stream_add_up_to_the_answer(log_probs: bool) -> None:
    choices = [reply(text, stream=True, logprobs=log_probs).choice for text in ("é✓ so", f"see {CALL}", CALL * 2)]
    answer = ProgramAnswer(True, tuple(choices), 5, 7)
    body, events = answer.body(), list(answer.events(usage=True))
    assert events[-1]["usage"] == body["usage"] and events[-1]["choices"] == []
    for number, whole in enumerate(body["choices"]):
        parts = [event["choices"][0] for event in events[:-1] if event["choices"][0]["index"] == number]
        assert parts[0]["delta"]["role"] == "assistant"
        assert [part["finish_reason"] for part in parts[:-1]] == [None] * (len(parts) - 1)
        assert parts[-1]["finish_reason"] == whole["finish_reason"] and parts[-1]["delta"] == {}
        assert "".join(part["delta"].get("content") or "" for part in parts) == (whole["message"]["content"] or "")
        calls: dict[int, dict[str, str]] = {}
        for call in (call for part in parts for call in part["delta"].get("tool_calls", ())):
            if "id" in call:
                calls[call["index"]] = {"id": call["id"], "name": call["function"]["name"], "arguments": ""}
            calls[call["index"]]["arguments"] += call["function"]["arguments"]
        assert list(calls.values()) == [
            {"id": call["id"], **call["function"]} for call in whole["message"].get("tool_calls", ())
        ]
        entries = [entry for part in parts if part["logprobs"] for entry in part["logprobs"]["content"]]
        assert entries == (whole["logprobs"]["content"] if log_probs else [])
        for event in events:
            json.dumps(event, ensure_ascii=False).encode()


def test_the_log_probs_of_a_plain_completion_are_those_of_its_tokens() -> None:
    ids = [*CODEC.inside(["é so"])[0], CODEC.end]
    request = read_request({"prompt": "a", "logprobs": 0}, chat=False)
    generated = Generated(tuple(ids), torch.arange(len(ids), dtype=torch.float32), True)
    choice = reply_of(CODEC, generated, request, "", 0).choice
    body = ProgramAnswer(False, (choice,), 1, len(ids)).body()["choices"][0]
    assert body["text"] == "".join(body["logprobs"]["tokens"]) == "é so"
    assert body["logprobs"]["token_logprobs"] == list(range(len(ids) - 1))
    assert body["logprobs"]["text_offset"] == [0, 0, 1, 2, 3]
