"""Another reward, paid only to completions of a given form: one verdict on form and answer together.

    value = r    if the whole completion matches the pattern
          = 0    otherwise, and for a completion that was cut

A separate reward for the form is soon earned by wrong answers in the right form. Vision-R1 (paper 108, arXiv
2503.06749) pays 1 only if both are right. Without another reward, the form alone is worth 1 (Med-R1, paper 40, arXiv
2503.13939, adds it to the answer's). The metric `share` is the share of completions of the form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from models.answers.patterns import compiled
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Blend, before
from models.method.rollout import Rollout

LONGEST = 20_000
"""Largest number of characters of a completion that has the form; bounds the time of a pattern."""


@part("in_form")
class InForm(Blend):
    """Another reward for completions of a form, and 0 for the others; it comes earlier in the recipe, with weight 0."""

    stands_alone = True
    pattern: str = r"(?s:<think>.*</think>.*\S.*)"
    """Regular expression that the whole completion must match, without white space around it."""
    of: str = ""
    """Label of the other reward; empty: the form alone is worth 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "_pattern", compiled(self.pattern, f"rewards.{self.label}.pattern"))

    @property
    def made_of(self) -> tuple[str, ...]:
        """Label of the other reward, if there is one."""
        return (self.of,) if self.of else ()

    def blend(self, resources: RunResources, rollouts: Sequence[Rollout], components: Mapping[str, Tensor]) -> Tensor:
        """Return the other reward, or 1, where the completion has the form, and 0 elsewhere, [completions]."""
        formed = torch.tensor([self._has_form(rollout) for rollout in rollouts])
        values = before(self.label, self.of, components) if self.of else torch.ones(len(rollouts))
        return torch.where(formed, values.float(), 0.0)

    def watched(self, rollouts: Sequence[Rollout], components: Mapping[str, Tensor]) -> dict[str, float]:
        """Return the share of completions of the form."""
        return {"share": sum(map(self._has_form, rollouts)) / max(1, len(rollouts))}

    def _has_form(self, rollout: Rollout) -> bool:
        text = rollout.text.strip()
        return rollout.finished and len(text) <= LONGEST and vars(self)["_pattern"].fullmatch(text) is not None
