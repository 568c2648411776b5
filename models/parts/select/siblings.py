"""Pairs of turns that were tried at the same point of an episode: the better value against the worse.

Step-level preferences from a tree (Agent Q, paper 82; step-level Q, paper 355; iTool, paper 312): with the history in
the prompt, the difference of two siblings' values is due to these turns alone. A turn has failed if episodes ended
below it and none of them reached the goal. It never wins against one that has not failed, whatever its value. With
`failed_only` it is always the worse one: a branch that led to the goal against one that did not (ToolPreference,
paper 359).
"""

from __future__ import annotations

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from models.method.registry import part
from models.method.scored import Scored
from models.method.select import Select


@part("siblings")
class Siblings(Select):
    """The best and the worst turn of each node, if they differ by enough."""

    makes_pairs = True
    margin: NonNegativeFloat = 1e-4
    """Difference of rewards that must be exceeded."""
    failed_only: bool = False
    """Whether the worse one must have failed, and the better one reached the goal."""

    def __call__(self, scored: Scored) -> Tensor:
        """Return indices of the better and the worse turn, [2 * nodes with such a pair]; of equals the first counts."""
        members: dict[int, list[int]] = {}
        for index, (rollout, group) in enumerate(zip(scored.rollouts, scored.groups.tolist(), strict=True)):
            if rollout.trained_tokens:
                members.setdefault(group, []).append(index)
        rewards, kept = scored.rewards.tolist(), list[int]()
        for held in members.values():
            reached = {index: scored.rollouts[index].episode.solved for index in held}
            better = [index for index in held if reached[index] is not False] or held
            worse = held
            if self.failed_only:
                better = [index for index in held if reached[index]]
                worse = [index for index in held if reached[index] is False]
            if not better or not worse:
                continue
            best, worst = max(better, key=lambda index: rewards[index]), min(worse, key=lambda index: rewards[index])
            if rewards[best] - rewards[worst] > self.margin:
                kept += [best, worst]
        return torch.tensor(kept, dtype=torch.long)
