"""Credit by turns: the return from a turn on, less the mean return of the group's others from the same turn on.

    G_i,t = sum over u >= t of gamma^(u - t) * r_i,u                    r: turn rewards; the outcome is the last turn's
    A_i,t = G_i,t - mean over the other episodes j that have a turn t of G_j,t

The baseline does not depend on episode i, so with gamma 1 the policy gradient is unbiased; a turn that no other episode
has keeps its return. Dense rewards of turns against one reward in the end, and estimators with and without bias, are
compared in "A Practitioner's Guide to Multi-turn Agentic Reinforcement Learning" (paper 204, arXiv 2510.01132).

`durations` weights every turn's gradient by the time that its action took, over the mean of the round: a fast action is
started more often in the same hours, and would be learned more often (RL for machine-learning engineering agents,
paper 194, arXiv 2509.01684). Equal durations change nothing. Durations that the environment declares are the same in
every run; measured seconds are not, and a run that uses them is not reproducible bit for bit.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from models.base.bounds import Share
from models.method.advantage import Advantage, Signal
from models.method.episode import Turn
from models.method.registry import part
from models.method.resources import RunResources
from models.method.scored import Scored
from models.parts.shared.of_turns import at_tokens, earned_by_turn, less_the_others, returns_to_go, turns_of


@part("turn_returns")
class TurnReturns(Advantage):
    """Return from each turn on, less the mean of the group's others at the same turn."""

    needs_group = True
    learns_from_flat_groups = True
    gamma: Share = 1.0
    """Discount of a reward per turn."""
    durations: Literal["none", "declared", "measured"] = "none"
    """Weight of a turn: its duration over the mean, as the environment declares it (declared), or in measured seconds
    (measured), which makes runs irreproducible; none: no weight."""

    def __call__(self, resources: RunResources, scored: Scored) -> Signal:
        """Compute advantages token by token, equal within a turn."""
        rollouts = scored.rollouts
        returns = returns_to_go(earned_by_turn(scored), self.gamma)
        numbers = [list(range(len(row))) for row in returns]
        turns = less_the_others(returns, numbers, scored.groups)
        if self.durations != "none":
            taken = [torch.tensor([self._duration(turn) for turn in turns_of(rollout)]) for rollout in rollouts]
            turns = [row * weight.to(row) for row, weight in zip(turns, over_their_mean(taken), strict=True)]
        return Signal(at_tokens(turns, rollouts))

    def _duration(self, turn: Turn) -> float:
        return turn.seconds if self.durations == "measured" else turn.duration


def over_their_mean(durations: list[Tensor]) -> list[Tensor]:
    """Divide durations by their mean over all turns, [episodes] tensors of [turns of it]; ones if nothing took time."""
    mean = torch.cat(durations).double().mean()
    return [row.double() / mean if mean > 0 else torch.ones_like(row) for row in durations]
