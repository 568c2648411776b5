"""Several rewards with weights from the prompt: a policy whose trade-offs are set at inference (paper 249).

    value = sum_i w_i(prompt) r_i / sum_i w_i(prompt)

The weights are part of the prompt, so the policy reads them (dimensional controllers of "Learning to Generate Research
Idea with Dynamic Control", arXiv 2412.14626). Trained over prompts with various weights, it learns a policy for each;
users request another balance by changing the prompt. Weights are divided by their sum, so that prompts with large
weights do not count more. A weight that a prompt does not name is `missing`; if all are zero the value is 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import field

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from models.answers.patterns import compiled
from models.base.bounds import LARGEST
from models.base.errors import UserError
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Blend
from models.method.rollout import Rollout

LONGEST_NUMBER = 32
"""Maximum length of a weight, characters; a longer match is ignored."""


@part("prompt_weights")
class PromptWeights(Blend):
    """Weighted mean of other rewards, with weights read from the prompt; they come before it with weight 0."""

    of: dict[str, str] = field(default_factory=dict)
    """Label of a reward -> regular expression whose first group is its weight in the prompt."""
    missing: NonNegativeFloat = 0.0
    """Weight of a reward that a prompt does not name."""

    def __post_init__(self) -> None:
        super().__post_init__()
        patterns = {}
        for label, pattern in self.of.items():
            where = f"rewards.{self.label}.of.{label}"
            patterns[label] = compiled(pattern, where)
            if not patterns[label].groups:
                raise UserError(
                    f"{where}: {pattern!r} has no group; put the number in brackets, such as 'novelty (\\d+)'"
                )
        object.__setattr__(self, "_patterns", patterns)

    @property
    def made_of(self) -> tuple[str, ...]:
        """Labels of the weighted rewards."""
        return tuple(self.of)

    def blend(self, resources: RunResources, rollouts: Sequence[Rollout], components: Mapping[str, Tensor]) -> Tensor:
        """Return the weighted means, [completions]."""
        known = {prompt: self._weights(prompt) for prompt in {rollout.problem.prompt for rollout in rollouts}}
        rows = [known[rollout.problem.prompt] for rollout in rollouts]
        weights = torch.tensor(rows, dtype=torch.float64).view(len(rollouts), len(self.of))
        values = torch.stack([components[label].double() for label in self.of], -1)
        return ((weights * values).sum(-1) / weights.sum(-1).clamp(min=1e-12)).float()

    def _weights(self, prompt: str) -> list[float]:
        """Return the weight of each reward in a prompt, [rewards], >= 0."""
        patterns: dict[str, re.Pattern[str]] = vars(self)["_patterns"]
        return [self._weight(pattern, prompt) for pattern in patterns.values()]

    def _weight(self, pattern: re.Pattern[str], prompt: str) -> float:
        match = pattern.search(prompt)
        text = match.group(1) if match is not None else None
        if text is None or len(text) > LONGEST_NUMBER:
            return self.missing
        try:
            weight = float(text)
        except ValueError:
            return self.missing
        return min(weight, LARGEST) if math.isfinite(weight) and weight >= 0 else self.missing
