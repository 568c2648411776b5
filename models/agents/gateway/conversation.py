"""Conversion of a program's request to the ids that the policy reads, with sampled ids kept.

A conversation that begins like an earlier call of the episode, its reply included, and has the same tools, continues
from that call's ids, and only the messages since then are encoded (`models.text.bridge`). A reply is recognised by the
message that the program received, calls of functions included; its tokens are never rendered again. Any other
conversation is a new beginning: it is encoded whole, and earlier words of the policy in it, if any, are part of the
prompt and are not trained on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from models.agents.gateway.calls import RecordedCall
from models.agents.gateway.program_request import BadRequest, ProgramRequest
from models.agents.gateway.tool_form import ToolForm
from models.base.errors import UserError
from models.text.bridge import bridge_of, ids_after_reply
from models.text.encoding import Codec
from models.text.rendering import ChatMessage


class Prompt(NamedTuple):
    """What the policy reads for a request."""

    ids: tuple[int, ...]
    messages: tuple[ChatMessage, ...]
    """The conversation as the program sent it; for a plain text one message of the role `text`, none for ids."""
    begun: str
    """Text at the end of the prompt that belongs to the reply: the beginning of a call that the program requires."""


class Conversations:
    """Encoder of the requests of programs.

    Args:
        codec: the policy's tokenizer.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def prompt(self, request: ProgramRequest, calls: Sequence[RecordedCall]) -> Prompt:
        """Return the prompt of a request.

        Args:
            request: the request of the program.
            calls: earlier calls of the episode.

        Raises:
            BadRequest: it holds no conversation that the policy can continue.
        """
        if request.messages:
            return self._chat_prompt(request, calls)
        if isinstance(request.prompt, str):
            return self._text_prompt(request.prompt, calls)
        if not all(0 <= token < len(self._codec.tokenizer) for token in request.prompt):
            raise BadRequest("prompt: an id is none of the tokenizer's")
        return Prompt(request.prompt, (), "")

    @cached_property
    def _form(self) -> ToolForm:
        return ToolForm(self._codec)

    def _chat_prompt(self, request: ProgramRequest, calls: Sequence[RecordedCall]) -> Prompt:
        ids = self._continued(request, calls)
        if ids is None:
            ids = self._encoded(request)
        begun = ""
        if request.choice in ("required", "named"):
            begun = self._form.beginning(request.named)
            ids = [*ids, *self._codec.inside([begun])[0]]
        return Prompt(tuple(ids), request.messages, begun)

    def _encoded(self, request: ProgramRequest) -> list[int]:
        """Return the ids of a conversation that is a new beginning."""
        try:
            messages, tools = self._form.written(request.messages, request.tools)
            if not self._codec.chat:
                return self._codec.plain(["\n".join(message.text for message in messages)])[0]
            return self._codec.conversations([messages], tools)[0]
        except UserError as error:
            raise BadRequest(f"messages: {error}") from None
        except (ValueError, TypeError, KeyError, RecursionError) as error:  # the template's own code
            reason = (str(error).splitlines() or [""])[0][:120]
            raise BadRequest(f"messages: the chat template refuses it ({reason})") from None

    def _continued(self, request: ProgramRequest, calls: Sequence[RecordedCall]) -> list[int] | None:
        """Return the ids of a conversation that continues an earlier call; None if it continues none."""
        candidates = [
            call
            for call in calls
            if call.finished and call.tools == request.tools_text and _continues(request.messages, call)
        ]
        if not candidates:
            return None
        call = max(candidates, key=lambda call: (len(call.messages), _same_ids(request.messages, call)))
        after_reply = self._after_reply(request.messages[len(call.messages) + 1 :], call, request)
        return None if after_reply is None else [*call.whole, *after_reply]

    def _after_reply(
        self, new_messages: Sequence[ChatMessage], call: RecordedCall, request: ProgramRequest
    ) -> list[int] | None:
        """Return the ids of the messages since a reply; None if the chat template cannot write them after one."""
        messages = self._form.messages(new_messages)
        if not self._codec.chat:
            return bridge_of(self._codec).ids(["\n".join(message.text for message in messages)])[0]
        _, tools = self._form.written(request.messages, request.tools)
        ended = call.tokens[-1] in self._codec.ends
        return ids_after_reply(self._codec, messages, ended=ended, tools=tools)

    def _text_prompt(self, prompt: str, calls: Sequence[RecordedCall]) -> Prompt:
        messages = (ChatMessage("text", prompt),)
        candidates = [
            (text, call)
            for call in calls
            if call.finished
            and [message.role for message in call.messages] == ["text"]
            and len(prompt) > len(text := call.messages[0].text + call.text)
            and prompt.startswith(text)
        ]
        if not candidates:
            return Prompt(tuple(self._codec.plain([prompt])[0]), messages, "")
        text, call = max(candidates, key=lambda candidate: len(candidate[1].messages[0].text))
        return Prompt((*call.whole, *self._codec.inside([prompt[len(text) :]])[0]), messages, "")


def _continues(messages: Sequence[ChatMessage], call: RecordedCall) -> bool:
    """Return whether a conversation begins with that of a call and the message that answered it."""
    if call.reply is None or len(messages) < len(call.messages) + 2:
        return False
    earlier = (*call.messages, call.reply)
    return all(_alike(message, other) for message, other in zip(messages, earlier, strict=False))


def _alike(message: ChatMessage, other: ChatMessage) -> bool:
    """Return whether two messages have the same content; ids may differ, and the white space of arguments."""
    return (message.role, message.text, len(message.calls)) == (other.role, other.text, len(other.calls)) and all(
        call.name == same.name and _same_arguments(call.arguments, same.arguments)
        for call, same in zip(message.calls, other.calls, strict=True)
    )


def _same_arguments(text: str, other: str) -> bool:
    if text == other:
        return True
    try:
        return bool(json.loads(text) == json.loads(other))
    except (ValueError, RecursionError):
        return False


def _same_ids(messages: Sequence[ChatMessage], call: RecordedCall) -> int:
    """Return how many calls of functions have the ids that the program received: the same call may be drawn twice."""
    earlier = (*call.messages, *([call.reply] if call.reply else []))
    return sum(
        function.id == same.id
        for message, other in zip(messages, earlier, strict=False)
        for function, same in zip(message.calls, other.calls, strict=False)
    )
