"""How much of the feedback a refinement has taken in: the choice among refinements of ILF (paper 200).

    value = share of the feedback's words, counted, that the refinement holds   (recall of runs of one to n words)

The paper asks a model whether a refinement incorporates the feedback, and tries likeness of the two texts beside it;
this is the second, which needs no model: the mean over n = 1, 2, .. `longest` of the share of the feedback's runs of n
words that stand in the refinement. It says something where feedback says how a thing is to be, as a corrected step
does. A completion that refines nothing, or of which nothing was said, is worth zero, as one that was cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from models.loop.rollout import Rollout
from models.loop.slots import Reward
from models.loop.world import World
from models.parts import part


def taken_in(feedback: str, text: str, longest: int) -> float:
    """Share of the feedback's runs of words that stand in a text, the mean over their lengths, in [0, 1]."""
    said, written = feedback.split(), text.split()
    shares = []
    for length in range(1, min(longest, len(said)) + 1):
        wanted, there = _runs(said, length), _runs(written, length)
        shares.append((wanted & there).total() / wanted.total())
    return sum(shares) / len(shares) if shares else 0.0


def _runs(words: Sequence[str], length: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[at : at + length]) for at in range(len(words) - length + 1))


@part("followed_feedback")
class FollowedFeedback(Reward):
    """Words of the feedback that a refinement holds; needs rollouts that refine."""

    longest: Annotated[int, Field(ge=1, le=16)] = 4
    """Most words of a run."""

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """Values in [0, 1], [completions]."""
        return torch.tensor(
            [taken_in(each.feedback, each.text, self.longest) if each.finished else 0.0 for each in rollouts]
        )
