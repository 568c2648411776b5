"""Share of a completion's words that count: those of a list, or those that are new to the prompt (paper 249).

    value = (different words that count) / max(words, least)

One dimension of the quality of an idea, such as its novelty, measured by words instead of a reward model (the
dimensions of learning to generate research ideas, paper 249, arXiv 2412.14626). A word counts once, so repeating it
only costs. Words are separated by white space and contain a letter or a digit; case and surrounding punctuation are
ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from models.base.bounds import Positive
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout


@part("word_share")
class WordShare(Reward):
    """Distinct words that count, divided by all words of a completion; zero for one that was cut."""

    counts: Literal["listed", "new"] = "listed"
    """listed: the words of `words`; new: those that do not occur in the prompt."""
    words: tuple[str, ...] = ()
    """Words that count, for `listed`."""
    least: Positive = 1
    """Minimum denominator: a completion of fewer words is measured as one of this many."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "_listed", frozenset(_plain(" ".join(self.words))))

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return values in [0, 1], [completions]."""
        return torch.tensor([self._share(rollout) for rollout in rollouts])

    def _share(self, rollout: Rollout) -> float:
        words = _plain(rollout.text) if rollout.finished else []
        if self.counts == "new":
            counted = set(words) - set(_plain(rollout.problem.prompt))
        else:
            listed: frozenset[str] = vars(self)["_listed"]
            counted = set(words) & listed
        return len(counted) / max(len(words), self.least)


def _plain(text: str) -> list[str]:
    words = (word.strip(".,;:!?\"'()*").casefold() for word in text.split())
    return [word for word in words if any(map(str.isalnum, word))]
