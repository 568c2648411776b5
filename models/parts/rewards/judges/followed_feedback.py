"""Share of the feedback that a refinement incorporates: the selection of refinements in ILF (paper 200).

    value = share of the feedback's words, with counts, in the refinement   (recall of n-grams of one to n words)

The paper asks a model whether a refinement incorporates the feedback, and also tries the similarity of the two texts.
This reward is the second, which needs no model: the mean over n = 1, 2, .. `longest` of the share of the feedback's
n-grams of words that the refinement contains. It is informative if the feedback states the desired result, as a
corrected step does. The value is zero for a completion that refines nothing or got no feedback, and for one that was
cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout


def taken_in(feedback: str, text: str, longest: int) -> float:
    """Return the share of the feedback's word n-grams that a text contains, the mean over n, in [0, 1]."""
    feedback_words, text_words = feedback.split(), text.split()
    shares = []
    for length in range(1, min(longest, len(feedback_words)) + 1):
        expected, present = _ngrams(feedback_words, length), _ngrams(text_words, length)
        shares.append((expected & present).total() / expected.total())
    return sum(shares) / len(shares) if shares else 0.0


def _ngrams(words: Sequence[str], length: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[at : at + length]) for at in range(len(words) - length + 1))


@part("followed_feedback")
class FollowedFeedback(Reward):
    """Share of the feedback's word n-grams that a refinement contains; needs rollouts that refine."""

    longest: Annotated[int, Field(ge=1, le=16)] = 4
    """Maximum number of words of an n-gram."""

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return values in [0, 1], [completions]."""
        return torch.tensor(
            [taken_in(each.source.feedback, each.text, self.longest) if each.finished else 0.0 for each in rollouts]
        )
