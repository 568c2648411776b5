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
    _refuse(body)
    if "messages" in body:
        return _of_chat(codec, _messages(body["messages"]), calls)
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        prompt = prompt[0]
    if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
        if not all(0 <= token < len(codec.tokenizer) for token in prompt):
            raise BadRequest("prompt: an id is none of the tokenizer's")
        return list(prompt), ()
    if not isinstance(prompt, str) or not prompt:
        raise BadRequest("prompt: a text or a list of token ids is wanted")
    return _of_text(codec, prompt, calls)


def _refuse(body: Mapping[str, Any]) -> None:
    for key in ("tools", "functions", "stop", "echo", "suffix", "response_format"):
        if body.get(key):
            raise BadRequest(f"{key} is not supported: describe in the prompt what is wanted, and leave {key} out")


def _messages(given: Any) -> tuple[Message, ...]:
    if not isinstance(given, list) or not given:
        raise BadRequest("messages: a list of one message or more is wanted")
    messages = tuple(_message(entry) for entry in given)
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


def _of_chat(
    codec: Codec, messages: tuple[Message, ...], calls: Sequence[RecordedCall]
) -> tuple[list[int], tuple[Message, ...]]:
    known = [call for call in calls if call.finished and _begins(messages, call)]
    if known:
        call = max(known, key=lambda call: len(call.asked))
        said = messages[len(call.asked) + 1 :]
        between = _between(codec, said)
        if between is not None:
            return [*call.whole, *between], messages
    if not codec.chat:
        return codec.plain(["\n".join(text for _, text in messages)])[0], messages
    try:
        return codec.conversations([messages])[0], messages
    except UserError as error:
        raise BadRequest(f"messages: {error}") from None


def _begins(messages: tuple[Message, ...], call: RecordedCall) -> bool:
    earlier = (*call.asked, ("assistant", call.text))
    return bool(call.asked) and len(messages) > len(earlier) and messages[: len(earlier)] == earlier


def _between(codec: Codec, said: Sequence[Message]) -> list[int] | None:
    """Return the ids of the messages since a reply; None if the chat template cannot write them after one."""
    if not codec.chat:
        return bridge_of(codec).ids(["\n".join(text for _, text in said)])[0]
    ((role, text), *more) = said
    if more or role not in ("user", "tool"):
        return None
    try:
        return bridge_of(codec, cast(Role, role)).ids([text])[0]
    except UserError:
        return None


def _of_text(codec: Codec, prompt: str, calls: Sequence[RecordedCall]) -> tuple[list[int], tuple[Message, ...]]:
    asked = (("text", prompt),)
    known = [
        call
        for call in calls
        if call.finished
        and [role for role, _ in call.asked] == ["text"]
        and len(prompt) > len(call.asked[0][1] + call.text)
        and prompt.startswith(call.asked[0][1] + call.text)
    ]
    if not known:
        return codec.plain([prompt])[0], asked
    call = max(known, key=lambda call: len(call.asked[0][1]))
    return [*call.whole, *codec.inside([prompt[len(call.asked[0][1] + call.text) :]])[0]], asked
