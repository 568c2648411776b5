"""The text that a recipe writes around every prompt, and the system message before it.

    data:   {template: "{prompt}\\nEnd with `#### N`."}      around the text of every prompt, with a chat or without
    policy: {chat: true, system: "Think step by step."}    a message of the role system before every chat prompt

Rows keep their prompts unchanged: splits, identity and contamination checks, rewards and samples read the bare text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from models.text.rendering import Message

PLACE = "{prompt}"
"""The placeholder of a template; the recipe's check requires it exactly once. Every other brace is text."""
BETWEEN = "\n\n"
"""Text that separates a row's system message from the rest of its prompt."""


def joined(system: str, prompt: str) -> str:
    """Join a system message and a prompt to one text; an empty system message adds nothing."""
    return f"{system}{BETWEEN}{prompt}" if system else prompt


@dataclass(frozen=True)
class PromptForm:
    """Text that a recipe writes around every prompt."""

    system: str = ""
    """System message of prompts without their own; for chat policies only."""
    template: str = PLACE
    """Text around every prompt."""

    @classmethod
    def of(cls, system: str | None, template: str | None) -> PromptForm:
        """Build the form from `policy.system` and `data.template`."""
        return cls(system or "", template or PLACE)

    def messages(self, prompt: str, system: str = "") -> list[tuple[str, str]]:
        """Return role and text of each message of a chat prompt; `opened` adds the recipe's system message before it.

        Args:
            prompt: text of the prompt, which may contain the row's own system message.
            system: the row's own system message.
        """
        user_message = ("user", self._around(_without(system, prompt)))
        return [("system", system), user_message] if system else [user_message]

    def text(self, prompt: str, system: str = "") -> str:
        """Return the text of a prompt for a policy without a chat template, the row's own system message first."""
        return joined(system, self._around(_without(system, prompt)))

    def opened(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Put the recipe's system message before a conversation, unless it begins with one."""
        has_system = bool(messages) and messages[0][0] in ("system", "developer")
        return messages if has_system or not self.system else [("system", self.system), *messages]

    def _around(self, prompt: str) -> str:
        head, _, tail = self.template.partition(PLACE)
        return f"{head}{prompt}{tail}"


BARE = PromptForm()
"""Form without text around prompts."""


def _without(system: str, prompt: str) -> str:
    """Return the rest of a prompt, or of a text that contains one, without the system message."""
    return prompt.replace(f"{system}{BETWEEN}", "", 1) if system else prompt


def in_context(context: str, prompt: str, attempt: str, feedback: str) -> str:
    """Fill in the context of a refinement: `{prompt}`, and `{shown}` by the attempt and its feedback.

    Inserted texts are not searched for placeholders.
    """
    head, _, tail = context.partition("{shown}")
    shown = f"{attempt} {feedback}".strip()
    return f"{head.replace('{prompt}', prompt)}{shown}{tail.replace('{prompt}', prompt)}"
