"""What a policy may call: text in, text out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import NamedTuple

from models.parts import Part


class ToolError(Exception):
    """A call that the tool refuses; its text is what the policy reads."""


class Offer(NamedTuple):
    """Something that a policy can call by a name."""

    usage: str
    """What it does and takes, in a line."""
    call: Callable[[str], str]
    """What it answers to an argument; a ToolError where it refuses."""


class Tool(Part):
    """What a policy calls by its name. Stands under `rollouts.environment.tool:`."""

    slot = "tool"

    @property
    def usage(self) -> str:
        """What it does and takes, in a line, for prompts and pages."""
        return ""

    def offers(self) -> Mapping[str, Offer]:
        """What can be called, by name: the tool itself; of a server whatever it has."""
        return {self.name: Offer(self.usage, self.call)}

    def in_round(self, number: int) -> Tool:
        """The tool as it is in a round of training, where it changes with time; evaluations take it as it stands."""
        return self

    def in_episode(self, seed: int) -> Tool:
        """The tool as an episode calls it; chance in its answers goes by `seed`, in [0, 2^63)."""
        return self

    @abstractmethod
    def call(self, argument: str) -> str:
        """What the tool answers.

        Raises:
            ToolError: it cannot; the policy reads why.
        """
