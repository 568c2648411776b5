"""Credit by turns: what was still to come from a turn on, less what the group's others had to come at the same turn.

    G_i,t = sum over u >= t of gamma^(u - t) * r_i,u                    r: turn rewards; the outcome is the last turn's
    A_i,t = G_i,t - mean over the other episodes j that have a turn t of G_j,t

The baseline does not depend on episode i, so with gamma 1 the policy gradient is unbiased; a turn that no other episode
has keeps its return. Dense rewards of turns against one reward in the end, and estimators with and without bias, are
compared in "A Practitioner's Guide to Multi-turn Agentic Reinforcement Learning" (paper 204, arXiv 2510.01132).

`durations` weighs every turn's gradient with the time that its action took, over the mean of the round: a fast action
is begun more often in the same hours, and would be learned more often (RL for machine-learning engineering agents,
paper 194, arXiv 2509.01684). Equal durations change nothing. Those that the environment declares are the same in every
run; seconds on the clock are not, and a run that goes by them cannot be made again bit for bit.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from models.bounds import Share
from models.formulas.of_turns import at_tokens, earned_by_turn, less_the_others, returns_to_go, turns_of
from models.loop.rollout import Scored
from models.loop.signal import Signal
from models.loop.slots import Advantage
from models.loop.turn import Turn
from models.loop.world import World
from models.parts import part


@part("turn_returns")
class TurnReturns(Advantage):
    """Return from each turn on, less the mean of the group's others at the same turn."""

    needs_group = True
    learns_from_flat_groups = True
    gamma: Share = 1.0
    """What a reward one turn later is worth now."""
    durations: Literal["none", "declared", "measured"] = "none"
    """Weigh a turn with its duration over their mean: what the environment declares (declared), or the seconds that it
    took (measured), by which no run can be made again."""

    def __call__(self, world: World, scored: Scored) -> Signal:
        """Advantages token by token, equal within a turn."""
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
    """Durations over their mean over all turns, [episodes] tensors of [turns of it]; ones where nothing took time."""
    mean = torch.cat(durations).double().mean()
    return [row.double() / mean if mean > 0 else torch.ones_like(row) for row in durations]
