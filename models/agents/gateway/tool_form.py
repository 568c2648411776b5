"""Writing of tools, calls and results for the policy: by its chat template, or in a plain form.

A chat template writes what it can; one probe of each kind shows what that is. The rest becomes text, in the form that
Hermes and Qwen use:

    tools      in the system message (or before the first message): their JSON, a line each, and how to call them
    calls      <tool_call>\n{"name": ..., "arguments": {...}}\n</tool_call> after the text of the message
    results    <tool_response>\n...\n</tool_response> in one message of the user

Without a chat template the same texts are used, except that a result is written as it is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from itertools import groupby

from models.base.errors import UserError
from models.text.encoding import Codec
from models.text.prompt_form import BETWEEN
from models.text.rendering import ChatMessage, FunctionCall, Message, Tool

CALL, CALL_END = "<tool_call>", "</tool_call>"

_NAME, _DESCRIPTION, _PARAMETER, _VALUE, _RESULT = "q4d1e8fq", "q77b0c2q", "q91ae5dq", "q0f63b8q", "q2c9d41q"
_TOOL: Tool = {
    "type": "function",
    "function": {
        "name": _NAME,
        "description": _DESCRIPTION,
        "parameters": {"type": "object", "properties": {_PARAMETER: {"type": "string"}}, "required": [_PARAMETER]},
    },
}
_CALL = ChatMessage("assistant", "", (FunctionCall("q00000001", _NAME, json.dumps({_PARAMETER: _VALUE})),))
_ANSWER = ChatMessage("tool", _RESULT, call_id="q00000001", name=_NAME)
_QUESTION = ("user", "?")


class ToolForm:
    """Writer of tools, calls and results.

    Args:
        codec: the policy's tokenizer.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def written(
        self, messages: Sequence[ChatMessage], tools: Sequence[Tool]
    ) -> tuple[list[ChatMessage], tuple[Tool, ...]]:
        """Return a conversation and its tools with everything as text that the chat template does not write."""
        messages = self.messages(messages)
        if not tools or self._writes_tools:
            return messages, tuple(tools)
        return self._introduced(messages, introduction(tools)), ()

    def messages(self, messages: Sequence[ChatMessage]) -> list[ChatMessage]:
        """Return messages with calls and results as text where the chat template does not write them."""
        written = list(messages) if self._writes_calls else [_call_as_text(message) for message in messages]
        return _results_as_text(written) if self._codec.chat and not self._writes_results else written

    def beginning(self, name: str = "") -> str:
        """Return the text with which a reply begins that must call a function.

        Args:
            name: the function; empty: the policy chooses it.
        """
        opening = f'{CALL}\n{{"name": "' if self._hermes else '{"name": "'
        return f'{opening}{name}", "{"arguments" if self._hermes else "parameters"}":' if name else opening

    @cached_property
    def _writes_tools(self) -> bool:
        rendered = self._rendered([_QUESTION], [_TOOL])
        return all(text in rendered for text in (_NAME, _DESCRIPTION, _PARAMETER))

    @cached_property
    def _call_text(self) -> str:
        """A probed call, as the template writes it; empty if it does not."""
        for answer in (_ANSWER, _QUESTION):
            rendered = self._rendered([_QUESTION, _CALL, answer])
            if _NAME in rendered and _VALUE in rendered:
                return rendered
        return ""

    @property
    def _writes_calls(self) -> bool:
        return bool(self._call_text)

    @cached_property
    def _writes_results(self) -> bool:
        call: Message = _CALL if self._writes_calls else ("assistant", "?")
        return _RESULT in self._rendered([_QUESTION, call, _ANSWER])

    @property
    def _hermes(self) -> bool:
        """Whether calls are written between tags, and not as JSON alone, as Llama 3 does."""
        return not self._writes_calls or CALL in self._call_text

    def _rendered(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> str:
        from jinja2 import TemplateError

        if not self._codec.chat or not self._codec.tokenizer.chat_template:
            return ""
        try:
            return self._codec.template.render(messages, tools=tools)
        except (TemplateError, ValueError, TypeError, KeyError, UserError):
            return ""

    def _introduced(self, messages: Sequence[ChatMessage], text: str) -> list[ChatMessage]:
        """Put a text into the system message, or before the first message if there can be no system message."""
        first, rest = messages[0], list(messages[1:])
        if not self._codec.chat:
            return [ChatMessage("system", text), *messages]
        if first.role in ("system", "developer"):
            return [first._replace(text=f"{first.text}{BETWEEN}{text}"), *rest]
        if _RESULT in self._rendered([("system", _RESULT), _QUESTION]):
            own = self._codec.form.system
            return [ChatMessage("system", f"{own}{BETWEEN}{text}" if own else text), first, *rest]
        return [first._replace(text=f"{text}{BETWEEN}{first.text}"), *rest]


def introduction(tools: Sequence[Tool]) -> str:
    """Return the plain text that introduces tools to the policy."""
    lines = [json.dumps(tool, ensure_ascii=False) for tool in tools]
    call = '{"name": NAME, "arguments": OBJECT}'
    return "\n".join(
        [
            "You may call these functions:",
            "<tools>",
            *lines,
            "</tools>",
            f"Write each call as JSON between {CALL} and {CALL_END}:",
            CALL,
            call,
            CALL_END,
        ]
    )


def _call_as_text(message: ChatMessage) -> ChatMessage:
    if not message.calls:
        return message
    calls = [
        f'{CALL}\n{{"name": {json.dumps(call.name, ensure_ascii=False)}, "arguments": {call.arguments}}}\n{CALL_END}'
        for call in message.calls
    ]
    return message._replace(text="\n".join([*([message.text] if message.text else []), *calls]), calls=())


def _results_as_text(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    written: list[ChatMessage] = []
    for is_result, group in groupby(messages, key=lambda message: message.role == "tool"):
        if is_result:
            texts = [f"<tool_response>\n{message.text}\n</tool_response>" for message in group]
            written.append(ChatMessage("user", "\n".join(texts)))
        else:
            written += group
    return written
