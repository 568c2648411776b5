"""A verifier looks at a turn, and a turn that fails is drawn again (Robot Utility Models, arXiv 2409.05865; paper 315).

    try 1, 2, .. n:  turn ~ pi(. | h)        until  pattern matches  and  score(h, turn) >= least

The verifier is a rule (`pattern`), a scorer, such as a judge that looks at the turn, or both; without either, every
turn that ended is accepted. If all tries fail, the turn is the try of highest value, the first of equals. Accepted
turns are not drawn again, so that the cost is that of the failures. With independent tries, and a verifier without
errors, the turn succeeds with probability 1 - (1 - p)^n. In the paper a multimodal model looks at the camera's images
after an episode of a robot, and the robot returns home and tries again; here the verifier reads each turn, so in an
environment only actions are tried again, not the episode.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from models.agents.strategy import CountedPolicy, SourcePaper, Strategy, not_greedy, request_of_call
from models.agents.turn_scorer import NO_SCORER, Scorer
from models.answers.patterns import compiled
from models.base.bounds import Number, Temperature
from models.engines.engine import CompletionRequest, Generated, TokenSampling
from models.method.registry import part


@part("verified")
class Verified(Strategy):
    """The first turn that a verifier accepts."""

    source = SourcePaper(
        315,
        "Robot Utility Models: General Policies for Zero-Shot Deployment in New Environments (arXiv 2409.05865)",
        family="imitation-learning",
    )
    tries: Annotated[int, Field(ge=1, le=1024)] = 4
    """Maximum number of tries per turn."""
    pattern: str = ""
    """Regular expression that an accepted turn contains; empty: no rule."""
    scorer: Scorer = NO_SCORER
    """Scorer that verifies a turn; none: only the rule does."""
    least: Number = 0.5
    """Smallest value of an accepted turn, in the unit of the scorer."""
    temperature: Temperature = 1.0
    """Temperature of the second and later tries if the turn would be greedy, because greedy tries are all the same."""

    def __post_init__(self) -> None:
        compiled(self.pattern, "strategy.pattern")

    @property
    def most_calls(self) -> int:
        """The number of tries, and of scores by the policy itself."""
        return self.tries * (1 + self.scorer.calls)

    def at_budget(self, answers: int) -> Verified:
        """Return the strategy with `answers` tries."""
        return replace(self, tries=answers)

    def turns(
        self, policy: CountedPolicy, requests: Sequence[CompletionRequest], drawing: TokenSampling
    ) -> list[Generated]:
        """Return the turn of each request, [requests].

        Raises:
            UserError: the scorer's model is not open.
        """
        turns: dict[int, Generated] = {}
        worth: dict[int, tuple[bool, float]] = {}
        failed = list(range(len(requests)))
        again = not_greedy(drawing, self.temperature)
        for number in range(self.tries):
            tried = policy.draft(
                [request_of_call(requests[place], number) for place in failed], again if number else drawing
            )
            if self.tries == 1:
                return tried
            values = policy.values(
                self.scorer, [requests[place].prompt for place in failed], [turn.tokens for turn in tried]
            )
            still_failed = []
            for place, turn, text, value in zip(failed, tried, policy.texts(tried), values, strict=True):
                if place not in worth or (turn.finished, value) > worth[place]:
                    turns[place], worth[place] = turn, (turn.finished, value)
                if self._accepts(turn, text, value):
                    turns[place] = turn
                else:
                    still_failed.append(place)
            failed = still_failed
            if not failed:
                break
        return [turns[place] for place in range(len(requests))]

    def _accepts(self, turn: Generated, text: str, value: float) -> bool:
        verified = self.scorer.name == "none" or value >= self.least
        return turn.finished and verified and re.search(self.pattern, text) is not None
