"""Cost of an episode's calls and tokens, as a negative reward (Router-R1, paper 273, arXiv 2506.09033).

    value = - (sum of the prices of its calls + prices of the tokens of tool outputs + price of the written tokens)

Prices are set in the recipe, tool by tool; a tool that is not named is free. A call that a tool refused costs as much
as any other. Written text and tool outputs are both counted in the policy's tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Annotated, ClassVar

import torch
from pydantic import Field, NonNegativeFloat
from torch import Tensor

from models.agents.play.calls import read_call
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout

Prices = Mapping[str, Annotated[float, Field(ge=0)]]


@part("cost")
class EpisodeCost(Reward):
    """Minus the price of calls and tokens."""

    renamed: ClassVar[Mapping[str, str]] = {"heard": "outputs"}
    calls: Prices = field(default_factory=dict)
    """Price of a call of each tool, by its name."""
    outputs: Prices = field(default_factory=dict)
    """Price of a token of each tool's output, by its name."""
    written: NonNegativeFloat = 0.0
    """Price of a token that the policy writes."""

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return values at most zero, [completions]."""
        return torch.tensor([-self._price(resources, rollout) for rollout in rollouts])

    def _price(self, resources: RunResources, rollout: Rollout) -> float:
        price, names = self.written * rollout.written_tokens, {*self.calls, *self.outputs}
        for turn in rollout.episode.turns:
            call = read_call(turn.text, names)
            if call is None:
                continue
            price += self.calls.get(call.tool, 0.0)
            if call.tool in self.outputs and turn.response:
                price += self.outputs[call.tool] * len(resources.codec.inside([turn.response])[0])
        return price
