"""Scorers of turns: the setting that every strategy of search shares, and the scales of their values.

    likelihood      mean log-prob of the turn's tokens under the policy itself, nats
    reward_model    log-odds of a Bradley-Terry model
    process_model   aggregated values of the steps, each the probability that the beginning ends in a right answer
    critic          expected return of the rest of an episode after the turn, by a critic of logged episodes
    judge           mean share of the range of scores over the votes of a generative judge

A strategy only declares its scorer. The models are opened outside of it (models.reward_models.turn_scorers), except for
the likelihood, which the policy computes. The values have three scales, which differ in how a weight of a vote and the
logarithm of a value are computed:

    scale    weight                      log value
    log      exp(value - largest)        value
    odds     exp(value - largest)        log sigmoid(value)
    share    value, at least 0           log of the value, limited to [LEAST, 1]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

from pydantic import BeforeValidator, Field

from models.base.bounds import Number
from models.base.errors import UserError
from models.method.recipe_paths import ContentPath

ScorerName = Literal["none", "likelihood", "reward_model", "process_model", "critic", "judge"]
Scale = Literal["log", "odds", "share"]
SCALES: dict[ScorerName, Scale] = {
    "none": "log",
    "likelihood": "log",
    "reward_model": "odds",
    "process_model": "share",
    "critic": "share",
    "judge": "share",
}
"""Scale of the values of each scorer."""
LEAST = 1e-9
"""Smallest share whose logarithm is taken."""


@dataclass(frozen=True, kw_only=True)
class ScorerSettings:
    """Scorer of turns, under `strategy.scorer`. A name alone is short for `{name: NAME}`."""

    name: ScorerName = "likelihood"
    """Kind of the scorer; none: turns are not scored."""
    path: ContentPath = ""
    """Folder of the scorer's model; empty: the reward model that the version learned from, for `reward_model` and
    `process_model`."""
    aggregate: Literal["model", "min", "product", "mean", "last"] = "model"
    """Aggregation of the values of steps by a process model; model: the one that its folder names."""
    address: Annotated[str, Field(pattern=r"^(https?://.+)?$")] = ""
    """Base address of an OpenAI-compatible server with the judge; empty: the judge is in the folder `path`."""
    model: str = ""
    """Name of the judge's model on the server; empty: the first that it lists."""
    template: str = ""
    """Question to the judge, with the placeholders {prompt} and {completion}; empty: that of the data set `judging`."""
    lowest: Number = 0.0
    """Lowest score of the judge."""
    highest: Number = 9.0
    """Highest score of the judge."""
    votes: Annotated[int, Field(ge=1, le=64)] = 1
    """Votes of the judge on each turn."""

    def __post_init__(self) -> None:
        if not self.lowest < self.highest:
            raise UserError(f"strategy.scorer: lowest is {self.lowest:g}, not below highest, {self.highest:g}")
        if self.address and self.name != "judge":
            raise UserError(f"strategy.scorer.address: only a judge may be on a server, not {self.name}")
        if self.address and self.path:
            raise UserError("strategy.scorer: the judge is either in the folder path or at address; set one of them")
        if self.path and self.name in ("none", "likelihood"):
            raise UserError(f"strategy.scorer.path: {self.name} reads no folder; name another scorer")

    @property
    def scale(self) -> Scale:
        """Scale of its values."""
        return SCALES[self.name]

    @property
    def calls(self) -> int:
        """Calls of the policy for each scored turn: the likelihood is the policy's own, other models are not."""
        return int(self.name == "likelihood")


def as_section(value: Any) -> Any:
    """Return a scorer's name alone as a section; other values are returned unchanged."""
    return {"name": value} if isinstance(value, str) else value


Scorer = Annotated[ScorerSettings, BeforeValidator(as_section)]
"""Type of the setting `scorer` of a strategy."""
NO_SCORER = ScorerSettings(name="none")


class TurnScorer(Protocol):
    """A model that scores turns, opened for one policy."""

    read: int
    """Tokens that it has read."""

    def __call__(self, prompts: Sequence[Sequence[int]], turns: Sequence[Sequence[int]]) -> list[float]:
        """Return the value of each turn after its history, [turns]; a larger one is better.

        Args:
            prompts: ids of the histories, [turns].
            turns: ids of whole turns or of their beginnings, not empty, [turns].
        """
        ...


def weights_of(values: Sequence[float], scale: Scale) -> list[float]:
    """Return the weight of each draft in a vote, [drafts], at least 0, from the values of the drafts of one turn."""
    if scale == "share":
        return [max(0.0, value) for value in values]
    largest = max(values, default=0.0)
    if largest == -math.inf:
        return [1.0] * len(values)
    return [math.exp(value - largest) for value in values]


def log_value(value: float, scale: Scale) -> float:
    """Return the logarithm of a value as a probability of success, nats."""
    if scale == "share":
        return math.log(min(1.0, max(LEAST, value)))
    if scale == "odds":
        return min(0.0, value) - math.log1p(math.exp(-abs(value)))
    return value
