"""Rendering of messages as one text by a tokenizer's chat template.

Most templates take the content of a message as a text. Others take a list of parts, `[{"type": "text", "text": ...}]`,
and write nothing for a text: the policy would be trained on prompts without a question. Each role is therefore tested
once with a probe, as a text and then as a list of parts, and a template that writes neither is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from models.base.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PROBE = "q3e8b57dq"
"""Text that no template writes by itself."""
_BEFORE = {"system": (), "developer": (), "user": (), "assistant": ("user",), "tool": ("user", "assistant")}
"""Roles of the messages before a probed message of each role."""

Tool = Mapping[str, Any]
"""A function that the policy may call, in OpenAI's form: `type`, and `function` with name, description, parameters."""


class FunctionCall(NamedTuple):
    """A call of a function in a message of the assistant."""

    id: str
    name: str
    arguments: str
    """Arguments as the text of a JSON object."""


class ChatMessage(NamedTuple):
    """A message of a conversation; role and text alone may be given as a pair."""

    role: str
    text: str
    calls: tuple[FunctionCall, ...] = ()
    """Calls of an assistant's message."""
    call_id: str = ""
    """The call that a message of the role `tool` answers."""
    name: str = ""
    """Name of the author, or of the called function; empty: none is given."""


Message = tuple[str, str] | ChatMessage


class ChatTemplate:
    """Renderer of conversations with a tokenizer's chat template.

    Args:
        tokenizer: has a chat template.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._template: Any = None
        self._parts: dict[str, bool] = {}

    def render(self, messages: Sequence[Message], *, asks: bool = True, tools: Sequence[Tool] = ()) -> str:
        """Render a conversation.

        Args:
            messages: role and text of each, and calls of functions.
            asks: also write the beginning of the assistant's reply.
            tools: functions that the policy may call; a template may leave them out.

        Raises:
            UserError: the template leaves out the text of one of the roles.
        """
        if self._template != self._tokenizer.chat_template:
            self._template, self._parts = self._tokenizer.chat_template, {}
        return self._write([(message, self._takes_parts(message[0])) for message in messages], asks, tools)

    def check(self, roles: Iterable[str]) -> None:
        """Check that the template writes the text of a message of each role.

        Raises:
            UserError: it is not, or the template refuses the role.
        """
        from jinja2 import TemplateError

        for role in roles:
            try:
                self.render([*((before, PROBE) for before in _BEFORE[role]), *_probe_messages(role)])
            except (TemplateError, ValueError, TypeError, KeyError) as error:
                reason = (str(error).splitlines() or [""])[0][:120]
                raise UserError(
                    f"{self._place}: its chat template refuses a message of the role {role} ({reason})"
                ) from None

    @property
    def _place(self) -> str:
        return str(self._tokenizer.name_or_path or "the tokenizer")

    def _takes_parts(self, role: str) -> bool:
        """Return whether the template takes a message of `role` as a list of parts; tested once."""
        if role not in self._parts:
            self._parts[role] = self._probe_parts(role)
        return self._parts[role]

    def _probe_parts(self, role: str) -> bool:
        from jinja2 import TemplateError

        before = [((earlier, "?"), self._takes_parts(earlier)) for earlier in _BEFORE.get(role, ())]
        after = [(("user", "?"), self._takes_parts("user"))] if role in ("system", "developer") else []
        refusal: Exception | None = None
        for parts in (False, True):
            try:
                if PROBE in self._write([*before, ((role, PROBE), parts), *after], asks=role != "assistant"):
                    return parts
            except (TemplateError, ValueError, TypeError, KeyError) as error:
                refusal = refusal or error
        if refusal is not None:
            raise refusal
        raise UserError(
            f"{self._place}: its chat template leaves out the text of a message of the role {role}, given as a text or "
            "as a list of parts; repair chat_template.jinja (or chat_template in tokenizer_config.json)"
        )

    def _write(self, messages: Sequence[tuple[Message, bool]], asks: bool, tools: Sequence[Tool] = ()) -> str:
        turns: Any = [_turn(ChatMessage(*message), parts) for message, parts in messages]
        return str(
            self._tokenizer.apply_chat_template(
                turns, tools=[dict(tool) for tool in tools] or None, tokenize=False, add_generation_prompt=asks
            )
        )


def _turn(message: ChatMessage, parts: bool) -> dict[str, Any]:
    """Return a message in the form that chat templates read."""
    turn: dict[str, Any] = {
        "role": message.role,
        "content": [{"type": "text", "text": message.text}] if parts else message.text,
    }
    if message.calls:
        turn["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _parsed(call.arguments)}}
            for call in message.calls
        ]
    return turn | {key: value for key, value in (("tool_call_id", message.call_id), ("name", message.name)) if value}


def _parsed(arguments: str) -> Any:
    """Return arguments as templates expect them, which write JSON themselves; text that is not JSON stays text."""
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _probe_messages(role: str) -> list[tuple[str, str]]:
    return [(role, PROBE), ("user", PROBE)] if role in ("system", "developer") else [(role, PROBE)]
