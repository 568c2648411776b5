"""Coverage of a problem by the policy's turns: the share of its entities that they name (DaSLaM, paper 328).

    r = |entities of the prompt that occur in the turns| / |entities of the prompt|

Entities are the distinct matches of a pattern, by default the numbers. A prompt without entities is covered. The
published code compares nouns, and also subtracts entities that only the turns have.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from models.answers.patterns import compiled
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout


@part("entity_coverage")
class EntityCoverage(Reward):
    """Share of the prompt's entities that the policy's turns name."""

    pattern: str = r"\d+(?:\.\d+)?"
    """Regular expression of an entity, regardless of case."""

    def __post_init__(self) -> None:
        super().__post_init__()
        compiled(self.pattern, "rewards.entity_coverage.pattern", re.IGNORECASE)

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return a value in [0, 1] for each completion, [completions]."""
        entity = compiled(self.pattern, "rewards.entity_coverage.pattern", re.IGNORECASE)
        return torch.tensor([_share(entity, rollout.problem.prompt, rollout.text) for rollout in rollouts])


def _share(entity: re.Pattern[str], prompt: str, text: str) -> float:
    needed, named = ({match.group().casefold() for match in entity.finditer(side)} for side in (prompt, text))
    return len(needed & named) / len(needed) if needed else 1.0
