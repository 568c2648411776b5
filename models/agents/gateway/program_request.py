"""Reading of a program's request: the fields of OpenAI's protocol as typed data, checked.

Fields that the loss forbids to follow, such as a temperature, are ignored. Fields that ask for something that the
policy cannot do are refused with one line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from models.base.errors import shortened
from models.text.rendering import ChatMessage, FunctionCall, Tool

MOST_CHOICES = 64
"""Maximum number of completions that a call may request (`n`)."""
MOST_STOPS = 4
MOST_TOOLS = 128
ROLES = ("system", "developer", "user", "assistant", "tool")
_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_UNSUPPORTED = ("functions", "function_call", "echo", "suffix", "response_format")


class BadRequest(Exception):
    """A request that cannot be answered; its text is for the author of the program."""


@dataclass(frozen=True, kw_only=True)
class ProgramRequest:
    """A request to `/v1/chat/completions` (`messages`) or `/v1/completions` (`prompt`)."""

    messages: tuple[ChatMessage, ...] = ()
    """The conversation; empty for a plain completion."""
    prompt: str | tuple[int, ...] = ""
    """Text or token ids of a plain completion."""
    tools: tuple[Tool, ...] = ()
    tools_text: str = ""
    """The tools as one text, for comparison; empty without tools."""
    choice: Literal["auto", "none", "required", "named"] = "auto"
    named: str = ""
    """The function that the reply must call, if `choice` is `named`."""
    several_calls: bool = True
    """Whether a reply may have more than one call (`parallel_tool_calls`)."""
    stops: tuple[str, ...] = ()
    """Texts of which the first ends the completion."""
    count: int = 1
    """Completions (`n`)."""
    most_tokens: int | None = None
    """Longest completion that the program wants, in tokens."""
    log_probs: bool = False
    stream: bool = False

    @property
    def names(self) -> frozenset[str]:
        """Names of the functions that a reply may call."""
        if self.choice == "none":
            return frozenset()
        names = {str(tool["function"]["name"]) for tool in self.tools}
        return frozenset({self.named} if self.choice == "named" else names)


def read_request(body: Mapping[str, Any], *, chat: bool) -> ProgramRequest:
    """Read the body of a request.

    Args:
        body: a JSON object.
        chat: whether it is a conversation, else a plain completion.

    Raises:
        BadRequest: a field has a wrong value, or asks for something that is not supported.
    """
    for key in (*_UNSUPPORTED, *(() if chat else ("tools", "tool_choice"))):
        if body.get(key):
            raise BadRequest(f"{key} is not supported: describe in the prompt what is wanted, and leave {key} out")
    tools = _tools(body.get("tools"))
    choice, named = _choice(body.get("tool_choice"), tools)
    limit = _whole(body, "max_completion_tokens")
    return ProgramRequest(
        messages=_messages(body.get("messages")) if chat else (),
        prompt="" if chat else _prompt(body.get("prompt")),
        tools=tools,
        tools_text=_text_of(tools),
        choice=choice,
        named=named,
        several_calls=_flag(body, "parallel_tool_calls", True),
        stops=_stops(body.get("stop")),
        count=_whole(body, "n", MOST_CHOICES) or 1,
        most_tokens=_whole(body, "max_tokens") if limit is None else limit,
        log_probs=_log_probs(body, chat),
        stream=_flag(body, "stream", False),
    )


def _messages(value: Any) -> tuple[ChatMessage, ...]:
    if not isinstance(value, list) or not value:
        raise BadRequest("messages: a list of one message or more is wanted")
    messages = tuple(_message(entry, f"messages[{number}]") for number, entry in enumerate(value))
    if messages[-1].role == "assistant":
        raise BadRequest("messages: the last one is the assistant's; a reply cannot be begun for the policy")
    return messages


def _message(entry: Any, place: str) -> ChatMessage:
    role, content = (entry.get("role"), entry.get("content")) if isinstance(entry, dict) else (None, None)
    calls = _calls(entry.get("tool_calls"), f"{place}.tool_calls") if role == "assistant" else ()
    if isinstance(content, list):  # parts, of which only text is supported
        parts = [part.get("text") if isinstance(part, dict) else None for part in content]
        content = "".join(part for part in parts if part) if all(isinstance(part, str) for part in parts) else None
    elif content is None and calls:
        content = ""
    if role not in ROLES or not isinstance(content, str):
        raise BadRequest(f"{place}: a message is a known role with a text as its content")
    call_id, name = entry.get("tool_call_id") or "", entry.get("name") or ""
    if not isinstance(call_id, str) or not isinstance(name, str):
        raise BadRequest(f"{place}: name and tool_call_id are texts")
    return ChatMessage(role, content, calls, call_id, name)


def _calls(value: Any, place: str) -> tuple[FunctionCall, ...]:
    if value is None:
        return ()
    calls = []
    entries: list[Any] = value if isinstance(value, list) else [None]
    for entry in entries:
        function: Any = entry.get("function") if isinstance(entry, dict) else None
        name, arguments = (
            (function.get("name"), function.get("arguments")) if isinstance(function, dict) else (None, None)
        )
        if not isinstance(name, str) or not isinstance(arguments, str):
            raise BadRequest(f"{place}: a list of calls, each with a function's name and its arguments as a JSON text")
        calls.append(FunctionCall(str(entry.get("id") or ""), name, arguments))
    return tuple(calls)


def _prompt(prompt: Any) -> str | tuple[int, ...]:
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        prompt = prompt[0]
    if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
        return tuple(prompt)
    if not isinstance(prompt, str) or not prompt:
        raise BadRequest("prompt: a text or a list of token ids is wanted")
    return prompt


def _tools(value: Any) -> tuple[Tool, ...]:
    if not value:
        return ()
    if not isinstance(value, list) or len(value) > MOST_TOOLS:
        raise BadRequest(f"tools: a list of at most {MOST_TOOLS} functions is wanted")
    names: set[str] = set()
    for number, tool in enumerate(value):
        place = f"tools[{number}]"
        function: Any = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
        if not isinstance(function, dict):
            raise BadRequest(f'{place}: {{"type": "function", "function": {{"name": ...}}}} is wanted')
        name = function.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise BadRequest(f"{place}: a name is 1 to 64 letters, digits, dots, dashes and underscores")
        if not isinstance(function.get("description") or "", str):
            raise BadRequest(f"{place}: the description of {name} must be a text")
        if not isinstance(function.get("parameters") or {}, dict):
            raise BadRequest(f"{place}: the parameters of {name} must be a JSON Schema object")
        if name in names:
            raise BadRequest(f"{place}: two functions have the name {name}")
        names.add(name)
    return tuple(value)


def _text_of(tools: tuple[Tool, ...]) -> str:
    try:
        return json.dumps(tools, sort_keys=True) if tools else ""
    except RecursionError:
        raise BadRequest("tools: their parameters are nested too deeply") from None


def _choice(value: Any, tools: tuple[Tool, ...]) -> tuple[Literal["auto", "none", "required", "named"], str]:
    if value is None or value == "auto":
        return "auto", ""
    if value == "none":
        return "none", ""
    function: Any = value.get("function") if isinstance(value, dict) and value.get("type") == "function" else None
    if value != "required" and not isinstance(function, dict):
        raise BadRequest(f"tool_choice: auto, none, required or a function is wanted, not {shortened(repr(value), 80)}")
    if not tools:
        raise BadRequest("tool_choice: a call is required, but the request has no tools")
    if not isinstance(function, dict):
        return "required", ""
    name = function.get("name")
    if name not in [tool["function"]["name"] for tool in tools]:
        raise BadRequest(f"tool_choice: no tool has the name {shortened(str(name), 80)}")
    return "named", str(name)


def _stops(value: Any) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if texts is None:
        return ()
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise BadRequest("stop: a text or a list of texts is wanted, none of them empty")
    if len(texts) > MOST_STOPS:
        raise BadRequest(f"stop: at most {MOST_STOPS} texts are supported, not {len(texts)}")
    return tuple(texts)


def _log_probs(body: Mapping[str, Any], chat: bool) -> bool:
    value = body.get("logprobs")
    if value is None or value is False:
        return False
    if (value is not True) if chat else (type(value) is not int or value < 0):
        raise BadRequest(f"logprobs: {'true or false' if chat else 'a whole number'} is wanted")
    if body.get("top_logprobs") if chat else value:
        key = "top_logprobs" if chat else "logprobs"
        raise BadRequest(f"{key}: only 0 is supported: the log-probs of the sampled tokens alone")
    return True


def _flag(body: Mapping[str, Any], key: str, default: bool) -> bool:
    value = body.get(key)
    if value is not None and not isinstance(value, bool):
        raise BadRequest(f"{key}: true or false is wanted")
    return default if value is None else value


def _whole(body: Mapping[str, Any], key: str, most: int | None = None) -> int | None:
    value = body.get(key)
    if value is not None and (type(value) is not int or value < 1 or (most is not None and value > most)):
        raise BadRequest(f"{key}: a whole number from 1{f' to {most}' if most else ''} is wanted")
    return value
