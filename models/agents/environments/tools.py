"""The policy calls tools and then answers (Toolformer, arXiv 2302.04761; ReAct, arXiv 2210.03629).

A turn whose last line begins with a tool's name and a colon is a call, and the policy reads the tool's answer:

    calculator: 47 * 83
    3901

So is one call in the form that chat templates teach, {"name": ..., "arguments": ...} between <tool_call> and
</tool_call>. Any other turn is the policy's answer and ends the episode. A call that the tool refuses, or that names an
unknown tool, is answered with a line that begins with `error:`; the episode continues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from models.agents.play.calls import read_call
from models.base.errors import UserError
from models.base.source_code import GivenFile
from models.datasets.splits import split_by_hash
from models.method.environment import Environment, EnvironmentEpisode, Info
from models.method.episode import Turn
from models.method.problem import Problem
from models.method.registry import default_part, part, slot_type
from models.method.tool import Offer, Tool, ToolError

if TYPE_CHECKING:
    Chosen = list[Tool]
else:
    Chosen = slot_type("tool")

ANSWER = "answer"
"""Name for turns that call no tool."""


@part("tools")
class Tools(Environment):
    """Tools that the policy may call before it answers."""

    tool: Chosen = field(default_factory=lambda: [default_part("tool")()])
    """The tools; a list of parts."""
    introduced: bool = False
    """Whether an episode begins with the names of the tools and their arguments, one per line."""
    goal: str = ""
    """Prompt of the problem that a call solves, with `{argument}` replaced by the call's argument; empty: unknown."""
    durations: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = field(default_factory=dict)
    """Declared duration of a call of each tool in seconds, by its name, and under `answer` of a turn without a call;
    names that are missing count as zero. Advantage turn_returns can weigh turns by them."""

    @property
    def given(self) -> tuple[GivenFile, ...]:
        """The tools' files."""
        return tuple(file for tool in self.tool for file in tool.given)

    def try_out(self) -> None:
        """Check that each tool works and that no two tools have the same name.

        Raises:
            UserError: one does not work.
        """
        for tool in self.tool:
            tool.try_out()
        _offers(self.tool)

    def in_round(self, number: int) -> Tools:
        """Return the environment for round `number`, as tools may follow a schedule."""
        return replace(self, tool=[tool.in_round(number) for tool in self.tool])

    def open(self, problem: Problem) -> EnvironmentEpisode:
        """Open an episode about one problem; every problem is accepted."""
        return _Calls(self, problem)

    def reached(self, problem: Problem, turns: Sequence[Turn]) -> Problem | None:
        """Return the problem that the last answered call solved, if it differs from `problem`; otherwise None.

        It must be of the same split, so that no held-out problem is trained on.
        """
        names = tuple(tool.name for tool in self.tool)
        for turn in reversed(turns):
            call = read_call(turn.text, names)
            if not self.goal or call is None or turn.response.startswith("error:"):
                continue
            prompt = self.goal.replace("{argument}", call.argument.strip())
            if prompt == problem.prompt or split_by_hash(prompt) != split_by_hash(problem.prompt):
                return None
            return replace(
                problem, id=f"{problem.id}/{prompt}", prompt=prompt, answer=turn.response, tokens=(), known=()
            )
        return None


class _Calls:
    def __init__(self, settings: Tools, problem: Problem) -> None:
        self._settings, self._problem = settings, problem
        self._offers: Mapping[str, Offer] = {}

    def reset(self, seed: int) -> tuple[str, Info]:
        self._offers = _offers([tool.about(self._problem).in_episode(seed) for tool in self._settings.tool])
        lines = [f"{name}: {offer.usage}".rstrip(": ") for name, offer in self._offers.items()]
        return "\n".join(lines) if self._settings.introduced else "", {}

    def step(self, turn: str) -> tuple[str, float, bool, bool, Info]:
        call = read_call(turn, self._offers)
        durations = self._settings.durations
        info: Info = {"duration": durations.get(ANSWER if call is None else call.tool, 0.0)}
        if call is None:
            return "", 0.0, True, False, info
        failed: Info = {**info, "failed": True}
        offer = self._offers.get(call.tool)
        if offer is None:
            named = ", ".join(self._offers)
            return f"error: no tool is called {call.tool!r}; there are {named}", 0.0, False, False, failed
        try:
            return offer.call(call.argument), 0.0, False, False, info
        except ToolError as error:
            return f"error: {error}", 0.0, False, False, failed

    def close(self) -> None:
        return None


def _offers(tools: list[Tool]) -> dict[str, Offer]:
    made: dict[str, Offer] = {}
    for tool in tools:
        for name, offer in tool.offers().items():
            if name in made:
                raise UserError(f"rollouts.environment.tool: two tools are called {name!r}")
            made[name] = offer
    return made
