"""Rendering of messages as one text by a tokenizer's chat template.

Most templates take the content of a message as a text. Others take a list of parts, `[{"type": "text", "text": ...}]`,
and write nothing for a text: the policy would be trained on prompts without a question. Each role is therefore tested
once with a probe, as a text and then as a list of parts, and a template that writes neither is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from models.base.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PROBE = "q3e8b57dq"
"""Text that no template writes by itself."""
_BEFORE = {"system": (), "developer": (), "user": (), "assistant": ("user",), "tool": ("user", "assistant")}
"""Roles of the messages before a probed message of each role."""


class ChatTemplate:
    """Renderer of conversations with a tokenizer's chat template.

    Args:
        tokenizer: has a chat template.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._template: Any = None
        self._parts: dict[str, bool] = {}

    def render(self, messages: Sequence[tuple[str, str]], *, asks: bool = True) -> str:
        """Render a conversation.

        Args:
            messages: role and text of each.
            asks: also write the beginning of the assistant's reply.

        Raises:
            UserError: the template leaves out the text of one of the roles.
        """
        if self._template != self._tokenizer.chat_template:
            self._template, self._parts = self._tokenizer.chat_template, {}
        return self._write([(role, text, self._takes_parts(role)) for role, text in messages], asks)

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

        before = [(earlier, "?", self._takes_parts(earlier)) for earlier in _BEFORE.get(role, ())]
        after = [("user", "?", self._takes_parts("user"))] if role in ("system", "developer") else []
        refusal: Exception | None = None
        for parts in (False, True):
            try:
                if PROBE in self._write([*before, (role, PROBE, parts), *after], asks=role != "assistant"):
                    return parts
            except (TemplateError, ValueError, TypeError, KeyError) as error:
                refusal = refusal or error
        if refusal is not None:
            raise refusal
        raise UserError(
            f"{self._place}: its chat template leaves out the text of a message of the role {role}, given as a text or "
            "as a list of parts; repair chat_template.jinja (or chat_template in tokenizer_config.json)"
        )

    def _write(self, messages: Sequence[tuple[str, str, bool]], asks: bool) -> str:
        turns: Any = [
            {"role": role, "content": [{"type": "text", "text": text}] if parts else text}
            for role, text, parts in messages
        ]
        return str(self._tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=asks))


def _probe_messages(role: str) -> list[tuple[str, str]]:
    return [(role, PROBE), ("user", PROBE)] if role in ("system", "developer") else [(role, PROBE)]
