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
    texts = _between(codec, role)
    if isinstance(texts, str):
        raise UserError(
            f"policy.chat: the chat template cannot be continued turn by turn, which rollouts episodes needs: {texts}"
        )
    return Bridge(codec, *texts)


def why_not(codec: Codec, role: Role = "user") -> str:
    """Return the reason why a chat template cannot be continued turn by turn; empty if it can."""
    texts = _between(codec, role)
    return texts if isinstance(texts, str) else ""


def _between(codec: Codec, role: Role) -> tuple[str, str] | str:
    """Return the template's text before and after the environment's words, or why it is undefined."""
    from jinja2 import TemplateError

    if not codec.tokenizer.chat_template:
        return "the tokenizer has none"
    try:
        return _probe(codec, role)
    except UserError as error:
        return str(error)
    except (TemplateError, ValueError, TypeError, KeyError) as error:
        return f"it refuses a message of the role {role} behind a reply ({str(error).splitlines()[0][:120]})"


def _probe(codec: Codec, role: Role) -> tuple[str, str] | str:
    def render(*messages: str, asks: bool = True) -> str:
        roles = ["user", *["assistant", role] * len(messages)]
        return codec.template.render(list(zip(roles, messages, strict=False)), asks=asks)

    probes: list[tuple[str, str, str]] = []
    for question, message, reply in zip(_QUESTIONS, _MESSAGES, _REPLIES, strict=True):
        whole = render(question, reply, message)
        head, after_reply = whole.partition(reply)[::2]
        if whole.count(message) != 1 or whole.count(reply) != 1:
            return f"it does not write what the role {role} says and what was replied before, once each"
        if head not in (render(question), render(question, reply, asks=False).partition(reply)[0]):
            return "it rewrites a conversation when a message is added"
        before, _, after = after_reply.partition(message)
        probes.append((head, before, after))
    if probes[0][1:] != probes[1][1:]:
        return "what it writes between messages depends on their texts"
    head, before, after = probes[0]
    longer = render(_QUESTIONS[0], _REPLIES[0], _MESSAGES[0], _REPLIES[1], _MESSAGES[1])
    begins, ends = f"{head}{_REPLIES[0]}{before}{_MESSAGES[0]}", f"{_REPLIES[1]}{before}{_MESSAGES[1]}{after}"
    if not longer.startswith(begins) or not longer.endswith(ends):
        return "it rewrites a conversation when a second reply is added"
    ids = codec.inside([before])[0]
    if not ids or ids[0] not in codec.ends:
        return "it does not end a reply with a token that ends completions"
    if _THOUGHT not in render(_QUESTIONS[0], _THOUGHT + _REPLIES[0], _MESSAGES[0]):
        return "it drops the thoughts of earlier replies"
    return before, after
