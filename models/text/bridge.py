"""What stands between the policy's turns: token in, token out.

What the policy sampled is never encoded again: decoded and encoded anew most rows of ids change, and the learner would
read other tokens than the engine drew. Only what the environment says is encoded, and what is written around it:

    prompt ids | sampled ids, end token | ids of the environment's words | sampled ids, end token | ...

Without a chat template the words stand on lines of their own. With one (`policy.chat`) what it writes around a message
is taken from a conversation of placeholders, between the end of a reply and the beginning of the next. Whether that is
the same whatever the conversation says, and whether what stands before stays as it was, is tried once; a template that
rewrites what it has written, such as by dropping thoughts, is refused by a line that says what it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from models.errors import UserError
from models.text.encoding import Codec

Role = Literal["user", "tool"]
"""Who says what the policy reads between its turns, as chat templates call it."""

_ASKED, _HEARD = ("q7f3a9cq", "qd20b5eq"), ("q5e1c07q", "q93fa66q")
_REPLIES = ("qb81d2eq", "q0c4e9aq")
_THOUGHT = "<think>\nq6a1f3dq\n</think>\n\n"


@dataclass(frozen=True)
class Bridge:
    """Turns what an environment says into the ids between two turns of the policy."""

    codec: Codec
    before: str
    """What is written between the end of the policy's turn and the environment's words."""
    behind: str
    """What is written behind them, up to where the policy's next turn begins."""

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids between a turn that ended and the next, for each text, [texts] lists."""
        ends = self.codec.ends
        rows = self.codec.inside([f"{self.before}{text}{self.behind}" for text in texts])
        return [row[1:] if row and row[0] in ends else row for row in rows]  # the turn brought its end token


def bridge_of(codec: Codec, role: Role = "user") -> Bridge:
    """The bridge of a policy.

    Args:
        codec: its tokenizer.
        role: who speaks between its turns.

    Raises:
        UserError: its chat template cannot be continued.
    """
    if not codec.chat:
        return Bridge(codec, "\n", "\n")
    written = _between(codec, role)
    if isinstance(written, str):
        raise UserError(
            f"policy.chat: the chat template cannot be continued turn by turn, which rollouts episodes needs: {written}"
        )
    return Bridge(codec, *written)


def why_not(codec: Codec, role: Role = "user") -> str:
    """What keeps a chat template from being continued, in a few words; empty where nothing does."""
    written = _between(codec, role)
    return written if isinstance(written, str) else ""


def _between(codec: Codec, role: Role) -> tuple[str, str] | str:
    """What the template writes before and behind the environment's words, or why that cannot be said."""
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
    def render(*said: str, asks: bool = True) -> str:
        roles = ["user", *["assistant", role] * len(said)]
        return codec.template.render(list(zip(roles, said, strict=False)), asks=asks)

    seen: list[tuple[str, str, str]] = []
    for asked, heard, reply in zip(_ASKED, _HEARD, _REPLIES, strict=True):
        whole = render(asked, reply, heard)
        head, behind_reply = whole.partition(reply)[::2]
        if whole.count(heard) != 1 or whole.count(reply) != 1:
            return f"it does not write what the role {role} says and what was replied before, once each"
        if head not in (render(asked), render(asked, reply, asks=False).partition(reply)[0]):
            return "it writes a conversation anew when a message is added"
        before, _, behind = behind_reply.partition(heard)
        seen.append((head, before, behind))
    if seen[0][1:] != seen[1][1:]:
        return "what it writes between messages goes by what they say"
    head, before, behind = seen[0]
    longer = render(_ASKED[0], _REPLIES[0], _HEARD[0], _REPLIES[1], _HEARD[1])
    begins, ends = f"{head}{_REPLIES[0]}{before}{_HEARD[0]}", f"{_REPLIES[1]}{before}{_HEARD[1]}{behind}"
    if not longer.startswith(begins) or not longer.endswith(ends):
        return "it writes a conversation anew when a second reply is added"
    ids = codec.inside([before])[0]
    if not ids or ids[0] not in codec.ends:
        return "it does not end a reply with a token that ends completions"
    if _THOUGHT not in render(_ASKED[0], _THOUGHT + _REPLIES[0], _HEARD[0]):
        return "it drops the thoughts of earlier replies"
    return before, behind
