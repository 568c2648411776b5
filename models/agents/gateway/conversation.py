"""Conversion of a program's request to the ids that the policy reads, with sampled ids kept.

A conversation that begins like an earlier call of the episode, its reply included, continues from that call's ids, and
only the messages since then are encoded (`models.text.bridge`). Any other conversation is a new beginning: it is
encoded whole, and earlier words of the policy in it, if any, are part of the prompt and are not trained on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from models.agents.gateway.calls import Message, RecordedCall
from models.base.errors import UserError
from models.text.bridge import Role, bridge_of
from models.text.encoding import Codec


class BadRequest(Exception):
    """A request that cannot be answered; its text is for the author of the program."""


def prompt_of(
    codec: Codec, body: Mapping[str, Any], calls: Sequence[RecordedCall]
) -> tuple[list[int], tuple[Message, ...]]:
    """Return the ids of a completion's prompt, and the conversation as the program sent it.

    Args:
        codec: the policy's tokenizer.
        body: body of a request to `/v1/chat/completions` (`messages`) or `/v1/completions` (`prompt`).
        calls: earlier calls of the episode.

    Raises:
        BadRequest: it holds no conversation that the policy can continue.
    """
    _refuse_unsupported(body)
    if "messages" in body:
        return _chat_prompt(codec, _messages(body["messages"]), calls)
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        prompt = prompt[0]
    if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
        if not all(0 <= token < len(codec.tokenizer) for token in prompt):
            raise BadRequest("prompt: an id is none of the tokenizer's")
        return list(prompt), ()
    if not isinstance(prompt, str) or not prompt:
        raise BadRequest("prompt: a text or a list of token ids is wanted")
    return _text_prompt(codec, prompt, calls)


def _refuse_unsupported(body: Mapping[str, Any]) -> None:
    for key in ("tools", "functions", "stop", "echo", "suffix", "response_format"):
        if body.get(key):
            raise BadRequest(f"{key} is not supported: describe in the prompt what is wanted, and leave {key} out")


def _messages(value: Any) -> tuple[Message, ...]:
    if not isinstance(value, list) or not value:
        raise BadRequest("messages: a list of one message or more is wanted")
    messages = tuple(_message(entry) for entry in value)
    if messages[-1][0] == "assistant":
        raise BadRequest("messages: the last one is the assistant's; a reply cannot be begun for the policy")
    return messages


def _message(entry: Any) -> Message:
    role, content = (entry.get("role"), entry.get("content")) if isinstance(entry, dict) else (None, None)
    if isinstance(content, list):  # parts, of which only text is supported
        parts = [part.get("text") if isinstance(part, dict) else None for part in content]
        content = "".join(part for part in parts if part) if all(isinstance(part, str) for part in parts) else None
    if role not in ("system", "developer", "user", "assistant", "tool") or not isinstance(content, str):
        raise BadRequest("messages: a message is a known role with a text as its content")
    return role, content


def _chat_prompt(
    codec: Codec, messages: tuple[Message, ...], calls: Sequence[RecordedCall]
) -> tuple[list[int], tuple[Message, ...]]:
    candidates = [call for call in calls if call.finished and _begins(messages, call)]
    if candidates:
        call = max(candidates, key=lambda call: len(call.messages))
        new_messages = messages[len(call.messages) + 1 :]
        bridge = _bridge_ids(codec, new_messages)
        if bridge is not None:
            return [*call.whole, *bridge], messages
    if not codec.chat:
        return codec.plain(["\n".join(text for _, text in messages)])[0], messages
    try:
        return codec.conversations([messages])[0], messages
    except UserError as error:
        raise BadRequest(f"messages: {error}") from None


def _begins(messages: tuple[Message, ...], call: RecordedCall) -> bool:
    earlier = (*call.messages, ("assistant", call.text))
    return bool(call.messages) and len(messages) > len(earlier) and messages[: len(earlier)] == earlier


def _bridge_ids(codec: Codec, new_messages: Sequence[Message]) -> list[int] | None:
    """Return the ids of the messages since a reply; None if the chat template cannot write them after one."""
    if not codec.chat:
        return bridge_of(codec).ids(["\n".join(text for _, text in new_messages)])[0]
    ((role, text), *more) = new_messages
    if more or role not in ("user", "tool"):
        return None
    try:
        return bridge_of(codec, cast(Role, role)).ids([text])[0]
    except UserError:
        return None


def _text_prompt(codec: Codec, prompt: str, calls: Sequence[RecordedCall]) -> tuple[list[int], tuple[Message, ...]]:
    messages = (("text", prompt),)
    candidates = [
        call
        for call in calls
        if call.finished
        and [role for role, _ in call.messages] == ["text"]
        and len(prompt) > len(call.messages[0][1] + call.text)
        and prompt.startswith(call.messages[0][1] + call.text)
    ]
    if not candidates:
        return codec.plain([prompt])[0], messages
    call = max(candidates, key=lambda call: len(call.messages[0][1]))
    return [*call.whole, *codec.inside([prompt[len(call.messages[0][1] + call.text) :]])[0]], messages
