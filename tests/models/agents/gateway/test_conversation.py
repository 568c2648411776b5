"""Conversations with tools: recorded ids are kept, and everything else is written by the template or plainly."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from models.agents.gateway.calls import RecordedCall
from models.agents.gateway.conversation import Conversations, Prompt
from models.agents.gateway.program_request import BadRequest, read_request
from models.agents.gateway.replies import reply_of
from models.engines.engine import Generated
from models.text.encoding import Codec
from tests.support.agents.tool_loop import TOOLS
from tests.support.agents.toy_policy import CHATML, HERMES, LLAMA, TOOLLESS, byte_codec

QUESTION = {"role": "user", "content": "a"}
CALL = '<tool_call>\n{"name": "lookup", "arguments": {"key":  "a"}}\n</tool_call>'
LLAMA_CALL = '{"name": "lookup", "parameters": {"key":  "a"}}'


def prompt(codec: Codec, calls: list[RecordedCall], *messages: Any, **body: Any) -> Prompt:
    request = read_request({"messages": [QUESTION, *messages], "tools": TOOLS, **body}, chat=True)
    return Conversations(codec).prompt(request, calls)


def called(codec: Codec, text: str, number: int = 0, **body: Any) -> RecordedCall:
    """Return the call that answers the question, for which the tokens of `text` were drawn."""
    request = read_request({"messages": [QUESTION], "tools": TOOLS, **body}, chat=True)
    asked = Conversations(codec).prompt(request, [])
    generated = Generated((*codec.inside([text])[0], codec.end), None, True)
    reply = reply_of(codec, generated, request, asked.begun, number)
    return RecordedCall(
        asked.ids, reply.tokens, None, reply.text, reply.finished, asked.messages, reply.message, request.tools_text
    )


def sent(call: RecordedCall) -> dict[str, Any]:
    """Return a recorded reply as the program sends it back, with the arguments as its own JSON writer writes them."""
    assert call.reply is not None
    calls = [
        {"id": entry.id, "type": "function", "function": {"name": entry.name, "arguments": '{"key":"a"}'}}
        for entry in call.reply.calls
    ]
    return {"role": "assistant", "content": call.reply.text or None, **({"tool_calls": calls} if calls else {})}


def decoded(codec: Codec, ids: Sequence[int]) -> str:
    return str(codec.tokenizer.decode(list(ids)))


def result(text: str, call_id: str = "") -> dict[str, str]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


@pytest.mark.parametrize(
    ("template", "text", "after"),
    [
        (HERMES, CALL * 2, "\n<|im_start|>user\n<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n"
         "</tool_response><|im_end|>\n<|im_start|>assistant\n"),
        (LLAMA, LLAMA_CALL, "<|im_start|>ipython\n1<|im_end|><|im_start|>ipython\n2<|im_end|><|im_start|>assistant\n"),
        (CHATML, CALL, "\n<|im_start|>tool\n1<|im_end|>\n<|im_start|>tool\n2<|im_end|>\n<|im_start|>assistant\n"),
        (TOOLLESS, CALL * 2, "\n<|im_start|>user\n<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n"
         "</tool_response><|im_end|>\n<|im_start|>assistant\n"),
    ],
    ids=["hermes", "llama", "no tools", "results refused"],
)  # fmt: skip
def test_several_results_after_a_reply_continue_from_its_ids(template: str, text: str, after: str) -> None:
    codec = byte_codec(template)
    call = called(codec, text)
    ids = prompt(codec, [call], sent(call), result("1"), result("2")).ids
    assert ids[: len(call.whole)] == call.whole
    assert decoded(codec, ids[len(call.whole) :]) == after


def test_without_a_chat_template_results_are_lines() -> None:
    codec = Codec(byte_codec().tokenizer)
    call = called(codec, CALL)
    assert decoded(codec, call.prompt).startswith("You may call these functions:\n<tools>\n")
    ids = prompt(codec, [call], sent(call), result("1"), result("2")).ids
    assert decoded(codec, ids[len(call.whole) :]) == "\n1\n2\n"


def test_the_same_call_drawn_twice_is_continued_where_its_id_says() -> None:
    codec = byte_codec()
    calls = [called(codec, CALL, 1), called(codec, CALL.replace("  ", " "), 2)]
    for call in calls:
        assert prompt(codec, calls, sent(call), result("1")).ids[: len(call.whole)] == call.whole


@pytest.mark.parametrize("change", ["tools", "arguments", "cut", "text"])
def test_an_edited_conversation_is_a_new_beginning(change: str) -> None:
    codec = byte_codec()
    call = called(codec, CALL)
    message, body = sent(call), dict[str, Any]()
    if change == "tools":
        body = {"tools": [{"type": "function", "function": {"name": "other"}}]}
    elif change == "arguments":
        message["tool_calls"][0]["function"]["arguments"] = '{"key": "b"}'
    elif change == "cut":
        call = replace(call, finished=False)
    else:
        message["content"] = "so"
    ids = prompt(codec, [call], message, result("1"), **body).ids
    assert ids[: len(call.whole)] != call.whole
    text = decoded(codec, ids)
    assert text.count("<tool_call>") == 1 and "<tool_response>\n1\n" in text


@pytest.mark.parametrize(("template", "place"), [(HERMES, "system\n<tools>\n{"), (CHATML, "system\nYou may call")])
def test_tools_are_written_by_the_template_or_in_the_system_message(template: str, place: str) -> None:
    codec = byte_codec(template)
    text = decoded(codec, prompt(codec, []).ids)
    assert f"<|im_start|>{place}" in text and '"Look up a key."' in text and "<|im_start|>user\na<|im_end|>" in text
    own = [{"role": "system", "content": "b"}, QUESTION]
    request = read_request({"messages": own, "tools": TOOLS}, chat=True)
    text = decoded(codec, Conversations(codec).prompt(request, []).ids)
    assert text.count("system\n") == 1 + (template == HERMES) and "b" in text


@pytest.mark.parametrize(("template", "begun"), [(HERMES, '<tool_call>\n{"name": "'), (LLAMA, '{"name": "')])
def test_a_required_call_is_begun_in_the_prompt(template: str, begun: str) -> None:
    codec = byte_codec(template)
    required = prompt(codec, [], tool_choice="required")
    assert required.begun == begun and required.ids == (*prompt(codec, []).ids, *codec.inside([begun])[0])
    named = prompt(codec, [], tool_choice={"type": "function", "function": {"name": "lookup"}})
    assert named.begun.startswith(f'{begun}lookup", "')
    rest = (LLAMA_CALL if template == LLAMA else CALL).removeprefix(begun)
    call = called(codec, rest, tool_choice="required")
    assert call.reply is not None and call.reply.calls
    assert prompt(codec, [call], sent(call), result("1")).ids[: len(call.whole)] == call.whole


def test_a_reply_that_a_stop_text_ended_is_continued_after_its_end_token() -> None:
    codec = byte_codec(CHATML)
    call = called(codec, "so! and", stop="!")
    ids = prompt(codec, [call], {"role": "assistant", "content": "so"}, {"role": "user", "content": "b"}, stop="!").ids
    assert decoded(codec, ids).endswith(
        "assistant\nso!<|im_end|>\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n"
    )
    assert ids[: len(call.whole)] == call.whole


NO_TOOL = {"type": "function", "function": {"name": "no spaces"}}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"tools": "lookup"}, "tools: a list of at most 128 functions"),
        ({"tools": [{"name": "lookup"}]}, r"tools\[0\]: "),
        ({"tools": [NO_TOOL]}, r"tools\[0\]: a name is 1 to 64"),
        ({"tools": [*TOOLS, *TOOLS]}, r"tools\[1\]: two functions have the name lookup"),
        ({"tools": [{"type": "function", "function": {"name": "a", "parameters": 3}}]}, "parameters of a"),
        ({"tool_choice": "always"}, "tool_choice: auto, none, required or a function is wanted, not 'always'"),
        ({"tool_choice": "required", "tools": None}, "the request has no tools"),
        ({"tool_choice": {"type": "function", "function": {"name": "b"}}}, "no tool has the name b"),
        ({"parallel_tool_calls": 1}, "parallel_tool_calls: true or false"),
        ({"stop": list("abcde")}, "stop: at most 4 texts are supported, not 5"),
        ({"stop": [""]}, "none of them empty"),
        ({"stop": 3}, "stop: a text or a list of texts"),
        ({"stream": "yes"}, "stream: true or false"),
        ({"logprobs": True, "top_logprobs": 2}, "top_logprobs: only 0"),
        ({"response_format": {"type": "json_object"}}, "response_format is not supported"),
        (
            {"messages": [QUESTION, {"role": "assistant", "tool_calls": [{"id": "1"}]}, result("1")]},
            r"\[1\].tool_calls",
        ),
        ({"messages": [QUESTION, {"role": "assistant", "content": None}, QUESTION]}, r"messages\[1\]: a message is"),
        ({"messages": [{"role": "tool", "content": "1", "tool_call_id": 3}]}, "tool_call_id are texts"),
    ],
)
def test_a_wrong_field_is_refused_in_one_line(body: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRequest, match=reason) as refused:
        read_request({"messages": [QUESTION], "tools": TOOLS, **body}, chat=True)
    assert "\n" not in str(refused.value)
