"""What a policy may call: text in, text out."""

from __future__ import annotations

from abc import abstractmethod

from models.parts import Part


class ToolError(Exception):
    """A call that the tool refuses; its text is what the policy reads."""


class Tool(Part):
    """What a policy calls by its name. Stands under `rollouts.environment.tool:`."""

    slot = "tool"

    @property
    def usage(self) -> str:
        """What it does and takes, in a line, for prompts and pages."""
        return ""

    @abstractmethod
    def call(self, argument: str) -> str:
        """What the tool answers.

        Raises:
            ToolError: it cannot; the policy reads why.
        """
