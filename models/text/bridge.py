"""Tokens between the policy's turns: only the environment's text is encoded, and sampled ids are kept.

Sampled tokens are never encoded again: decoding and encoding changes most rows of ids, and the learner would then
read other tokens than the engine drew. Only the environment's text, and the text around it, is encoded:

    prompt ids | sampled ids, end token | ids of the environment's words | sampled ids, end token | ...

Without a chat template the words are on lines of their own. With one (`policy.chat`), the text that the template writes
around a message is taken from a conversation of placeholders, between the end of a reply and the beginning of the next.
One test checks that this text does not depend on the conversation, and that the text before it does not change. A
template that rewrites earlier text, for example by dropping thoughts, is refused with a line that describes the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from models.base.errors import UserError
from models.text.encoding import Codec
from models.text.rendering import ChatMessage, Message, Tool

Role = Literal["user", "tool"]
"""Role of the text that the policy reads between its turns, as chat templates name it."""

_QUESTIONS, _MESSAGES = ("q7f3a9cq", "qd20b5eq"), ("q5e1c07q", "q93fa66q")
_REPLIES = ("qb81d2eq", "q0c4e9aq")
_THOUGHT = "<think>\nq6a1f3dq\n</think>\n\n"


@dataclass(frozen=True)
class Bridge:
    """Encoder of an environment's text as the ids between two turns of the policy."""

    codec: Codec
    before: str
    """Text between the end of the policy's turn and the environment's words."""
    after: str
    """Text after them, up to the beginning of the policy's next turn."""

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids between a finished turn and the next, for each text, [texts] lists."""
        ends = self.codec.ends
        rows = self.codec.inside([f"{self.before}{text}{self.after}" for text in texts])
        return [row[1:] if row and row[0] in ends else row for row in rows]  # the turn already has its end token


def bridge_of(codec: Codec, role: Role = "user") -> Bridge:
    """Build the bridge of a policy.

    Args:
        codec: its tokenizer.
        role: role of the messages between its turns.

    Raises:
        UserError: its chat template cannot be continued.
    """
    if not codec.chat:
        return Bridge(codec, "\n", "\n")
    texts = _between(codec, (role,))
    if isinstance(texts, str):
        raise UserError(
            f"policy.chat: the chat template cannot be continued turn by turn, which rollouts episodes needs: {texts}"
        )
    before, after = texts
    return Bridge(codec, before, after)


def why_not(codec: Codec, role: Role = "user") -> str:
    """Return the reason why a chat template cannot be continued turn by turn; empty if it can."""
    texts = _between(codec, (role,))
    return texts if isinstance(texts, str) else ""


def ids_after_reply(
    codec: Codec, messages: Sequence[ChatMessage], *, ended: bool, tools: Sequence[Tool] = ()
) -> list[int] | None:
    """Return the ids of messages after a reply whose ids are kept, as the chat template writes these messages.

    Args:
        codec: the policy's tokenizer, with a chat template.
        messages: messages since the reply, one or more, of the roles user and tool.
        ended: whether the reply has its end token; otherwise the ids begin with it.
        tools: functions that the policy may call in this conversation.

    Returns:
        The ids; None if the template cannot be continued with these messages.
    """
    from jinja2 import TemplateError

    roles = tuple(message.role for message in messages)
    if not {*roles} <= {"user", "tool"} or isinstance(_between(codec, roles, tools), str):
        return None
    try:
        whole = codec.template.render([("user", _QUESTIONS[0]), ("assistant", _REPLIES[0]), *messages], tools=tools)
    except (TemplateError, ValueError, TypeError, KeyError, RecursionError, UserError):
        return None
    (ids,) = codec.inside([whole.partition(_REPLIES[0])[2]])
    if not ids or ids[0] not in codec.ends:
        return None
    return ids[1:] if ended else ids


def _between(codec: Codec, roles: Sequence[str], tools: Sequence[Tool] = ()) -> tuple[str, ...] | str:
    """Return the template's text before, between and after messages of these roles, or why it is undefined."""
    from jinja2 import TemplateError

    if not codec.tokenizer.chat_template:
        return "the tokenizer has none"
    try:
        return _probe(codec, roles, tools)
    except UserError as error:
        return str(error)
    except (TemplateError, ValueError, TypeError, KeyError, RecursionError) as error:
        named = " and ".join(dict.fromkeys(roles))
        return f"it refuses a message of the role {named} behind a reply ({str(error).splitlines()[0][:120]})"


def _probe(codec: Codec, roles: Sequence[str], tools: Sequence[Tool]) -> tuple[str, ...] | str:
    def after(reply: str, *texts: str) -> list[Message]:
        return [("assistant", reply), *zip(roles, texts, strict=False)]

    def render(question: str, *rest: Message, asks: bool = True) -> str:
        return codec.template.render([("user", question), *rest], asks=asks, tools=tools)

    probes: list[tuple[str, ...]] = []
    messages = [[f"{message}{number}q" for number in range(len(roles))] for message in _MESSAGES]
    for question, texts, reply in zip(_QUESTIONS, messages, _REPLIES, strict=True):
        whole = render(question, *after(reply, *texts))
        head, rest = whole.partition(reply)[::2]
        if any(whole.count(text) != 1 for text in (reply, *texts)):
            named = " and ".join(dict.fromkeys(roles))
            return f"it does not write the text of the role {named} and the reply before it, each once"
        if head not in (render(question), render(question, *after(reply), asks=False).partition(reply)[0]):
            return "it rewrites a conversation when a message is added"
        parts = []
        for text in texts:
            before, _, rest = rest.partition(text)
            parts.append(before)
        probes.append((head, *parts, rest))
    if probes[0][1:] != probes[1][1:]:
        return "what it writes between messages depends on their texts"
    head, *between = probes[0]
    longer = render(_QUESTIONS[0], *after(_REPLIES[0], *messages[0]), *after(_REPLIES[1], *messages[1]))
    first, second = ("".join(f"{part}{text}" for part, text in zip(between, texts, strict=False)) for texts in messages)
    if not longer.startswith(f"{head}{_REPLIES[0]}{first}") or not longer.endswith(
        f"{_REPLIES[1]}{second}{between[-1]}"
    ):
        return "it rewrites a conversation when a second reply is added"
    ids = codec.inside([between[0]])[0]
    if not ids or ids[0] not in codec.ends:
        return "it does not end a reply with a token that ends completions"
    if _THOUGHT not in render(_QUESTIONS[0], *after(_THOUGHT + _REPLIES[0], *messages[0])):
        return "it drops the thoughts of earlier replies"
    return tuple(between)
