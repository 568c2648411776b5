"""Reward for the number of steps of a completion, up to a limit: the exploration reward of RLSP (paper 100).

    value = min(steps, most) / most                 0 for a completion that was cut

A policy that is rewarded for right answers alone keeps to the shortest working that it knows. A small reward for steps,
whatever they contain, makes it try longer ones, and the verifier keeps those that lead to right answers. The reward of
correctness has the larger weight and a label of its own, so that both are logged apart: this reward alone teaches only
to write more lines. A step ends at a token whose text contains a mark; steps of marks and white space
alone do not count.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.base.bounds import Positive
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout
from models.method.steps import MARKS, pieces_of, step_begins, step_ends


@part("steps")
class Steps(Reward):
    """Number of steps as a share of the largest number that is rewarded."""

    most: Positive = 8
    """Number of steps from which the reward no longer grows."""
    marks: tuple[str, ...] = MARKS
    """Texts that end a step: a token whose text contains one of them is the last of its step."""

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return values in [0, 1], [completions]; 0 for a completion that was cut, as endless steps would be."""
        pieces = pieces_of(resources.codec, [rollout.written_ids for rollout in rollouts])
        counts = [self._count(texts) for texts in pieces]
        return torch.tensor(
            [
                min(count, self.most) / self.most if rollout.finished else 0.0
                for count, rollout in zip(counts, rollouts, strict=True)
            ]
        )

    def _count(self, pieces: Sequence[str]) -> int:
        """Return the number of steps with text other than marks and spaces."""
        ends = step_ends(pieces, self.marks)
        steps = ("".join(pieces[begin : end + 1]) for begin, end in zip(step_begins(ends), ends, strict=True))
        return sum(bool(self._without_marks(step).strip()) for step in steps)

    def _without_marks(self, step: str) -> str:
        for mark in self.marks:
            step = step.replace(mark, "")
        return step
