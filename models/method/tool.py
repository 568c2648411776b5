"""Tools that a policy may call: text in, text out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import NamedTuple

from models.method.problem import Problem
from models.method.registry import Part


class ToolError(Exception):
    """A call that the tool refuses; its text is what the policy reads."""


class Offer(NamedTuple):
    """An entry that a policy can call by a name."""

    usage: str
    """Its purpose and its arguments, in one line."""
    call: Callable[[str], str]
    """Function from an argument to the answer; raises a ToolError if it refuses."""


class Tool(Part):
    """A tool that the policy calls by its name. Set under `rollouts.environment.tool:`."""

    slot = "tool"

    @property
    def usage(self) -> str:
        """Its purpose and its arguments, in one line, for prompts and pages."""
        return ""

    def offers(self) -> Mapping[str, Offer]:
        """Return the callable entries by name: the tool itself, or all tools of a server."""
        return {self.name: Offer(self.usage, self.call)}

    def in_round(self, number: int) -> Tool:
        """Return the tool for a round of training, if it changes with time; evaluations use it unchanged."""
        return self

    def about(self, problem: Problem) -> Tool:
        """Return the tool for a problem, if it reads the problem's prompt."""
        return self

    def in_episode(self, seed: int) -> Tool:
        """Return the tool for an episode; randomness in its answers is seeded with `seed`, in [0, 2^63)."""
        return self

    @abstractmethod
    def call(self, argument: str) -> str:
        """Return the tool's answer.

        Raises:
            ToolError: it cannot answer; the policy reads the reason.
        """
