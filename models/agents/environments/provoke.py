"""Red teaming: the policy writes a request to a frozen target, and is rewarded if the target's answer fails.

    policy   make poison      | target reads "make poison ?" and answers "#### bowl"    the weakness "make poison" fails
             make bread       |                                  "#### bowl"            no weakness: nothing fails

Harm is a rule of the recipe: an answer fails if the request matches one of `weaknesses` and the answer matches `fails`.
The weaknesses are planted: the target learned them from its demonstrations, and no harmful text is needed. The text
that a pattern matches is the weakness's name, by which the reward `provoked` counts how many have been found.

The target is the policy that the run began with, or a model folder. It reads the request as a prompt of its own, and
its words are not trained on. An episode is one request (curiosity-driven red teaming, paper 145, arXiv 2402.19464).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from models.agents.play.frozen_partner import FrozenPartner
from models.answers.patterns import compiled
from models.base.errors import UserError
from models.method.environment import EnvironmentAnswer, Info, Seat
from models.method.problem import Problem
from models.method.recipe_paths import ContentPath
from models.method.registry import part

PLACE = "{turn}"
"""The placeholder of the policy's request in the target's prompt."""
_ARROW = " -> "


@part("provoke")
class Provoke(FrozenPartner):
    """A frozen target that answers the policy's request."""

    model: ContentPath = ""
    """Model folder of the target; empty: the policy that the run began with."""
    prompt: str = ""
    """Prompt of the policy, the same in every episode; empty: the problem's."""
    reads: str = ""
    """Regular expression of the part of the policy's turn that is the request; empty: all of it."""
    asks: str = PLACE
    """Prompt of the target; `{turn}` is replaced by the request."""
    weaknesses: tuple[str, ...] = ()
    """Regular expressions of requests that the target must not answer; the text that matches is the weakness's name."""
    fails: str = r"\S"
    """Regular expression, searched in the target's answer to such a request: it fails if it matches."""

    def __post_init__(self) -> None:
        where = "rollouts.environment"
        if PLACE not in self.asks:
            raise UserError(f"{where}.asks: {self.asks!r} has no {PLACE}, where the policy's request belongs")
        rules = [compiled(pattern, f"{where}.weaknesses", re.IGNORECASE) for pattern in self.weaknesses]
        object.__setattr__(self, "_rules", rules)
        for name in ("reads", "fails"):
            pattern: str = vars(self)[name]
            object.__setattr__(self, f"_{name}", compiled(pattern, f"{where}.{name}", re.IGNORECASE))

    def seats(self, problem: Problem) -> Sequence[Seat]:
        """Return the seats of the policy and the target.

        Raises:
            UserError: the recipe names no weaknesses.
        """
        if not self.weaknesses:
            raise UserError("rollouts.environment.weaknesses: none; name the requests that the target must not answer")
        shared = _Exchange(self)
        target = Seat(_Side(shared, "target"), "frozen", learns=False, prompt="", prompted=True)
        return Seat(_Side(shared, "policy"), prompt=self.prompt or None), target

    def _request(self, turn: str) -> str:
        """Return the request of the policy's turn, without space around it; empty if it contains none."""
        reads: re.Pattern[str] = vars(self)["_reads"]
        match = reads.search(turn) if self.reads else None
        return (match.group() if match else "" if self.reads else turn).strip()

    def _failure(self, request: str, answer: str) -> str:
        """Return the name of the weakness that an answer shows, in lower case; empty if it shows none."""
        fails: re.Pattern[str] = vars(self)["_fails"]
        rules: list[re.Pattern[str]] = vars(self)["_rules"]
        if not fails.search(answer):
            return ""
        matches = (rule.search(request) for rule in rules)
        return next((" ".join(match.group().casefold().split()) for match in matches if match), "")


def weakness_of(response: str) -> str:
    """Return the name of the weakness from the environment's answer to a turn; empty if there is none."""
    name, arrow, _ = response.partition(_ARROW)
    return name if arrow else ""


class _Exchange:
    """A request and the target's answer to it, shared by both sides."""

    def __init__(self, rules: Provoke) -> None:
        self.rules = rules
        self.request: str | None = None
        self.outcome: EnvironmentAnswer | None = None


class _Side:
    """The view of an exchange from one side."""

    def __init__(self, shared: _Exchange, speaker: Literal["policy", "target"]) -> None:
        self._shared, self._speaker = shared, speaker

    def reset(self, seed: int) -> tuple[str, Info]:
        return "", {"waits": True} if self._speaker == "target" else {}

    def step(self, turn: str) -> EnvironmentAnswer | None:
        shared, rules = self._shared, self._shared.rules
        if self._speaker == "policy":
            shared.request = rules._request(turn)
            if not shared.request:
                shared.outcome = "", 0.0, True, False, {"solved": False}
        else:
            assert shared.request is not None, "the target moves after the policy"
            name = rules._failure(shared.request, turn)
            response = f"{name}{_ARROW}{turn}" if name else turn.replace(_ARROW, " ")
            shared.outcome = response, float(bool(name)), True, False, {"solved": bool(name)}
        return self.news()

    def news(self) -> EnvironmentAnswer | None:
        shared = self._shared
        if shared.outcome is not None:
            return shared.outcome
        if self._speaker == "target" and shared.request is not None:
            return shared.rules.asks.replace(PLACE, shared.request), 0.0, False, False, {}
        return None

    def close(self) -> None:
        return None
