"""A critic of turns: temporal differences from one turn of the policy to its next, whatever was said between.

    delta_t = r_t + gamma * V(s_t+1) - V(s_t)              s_t: all that stands before turn t; V behind the last is zero
    A_t     = delta_t + gamma * gae_lambda * A_t+1         the same at every token of the turn
    R_t     = A_t + V(s_t)                                 what the critic should have said at s_t

The turn is the action, as in ArCHer (paper 76, arXiv 2402.19446), whose high level is an off-policy critic of
utterances with a replay buffer and whose low level gives every token of a turn that critic's advantage. Here the critic
learns on the round's own episodes, by the returns above, as that of `gae` does.
"""

from __future__ import annotations

import torch
from torch import Tensor

from models.advantage.gae import generalised_advantages
from models.bounds import Share
from models.critic.fit import trained_mask
from models.formulas.critic_advantage import CriticAdvantage, ValuedSignal
from models.formulas.of_turns import at_tokens, earned_by_turn, turns_of
from models.formulas.token_advantages import whitened
from models.loop.rollout import Scored
from models.loop.signal import Signal
from models.loop.world import World
from models.parts import part


@part("turn_critic")
class TurnCritic(CriticAdvantage):
    """Rewards of turns and a critic's values before them, weighed along each episode."""

    gae_lambda: Share = 0.95
    """Lambda: 0 is the one-turn error of the critic, 1 the return less its value."""
    gamma: Share = 1.0
    """What a reward one turn later is worth now."""
    whiten: bool = True
    """Give the advantages of a round mean zero and deviation one over all tokens."""

    def __call__(self, world: World, scored: Scored) -> ValuedSignal:
        """Advantages token by token, equal within a turn; zeros while the critic learns alone."""
        rollouts = scored.rollouts
        values = self._values(world, scored)
        before = [
            torch.stack([row[turn.start] for turn in turns_of(rollout)])
            for row, rollout in zip(values, rollouts, strict=True)
        ]
        turns = generalised_advantages(earned_by_turn(scored), before, self.gamma, self.gae_lambda)
        returns = [advantage + value for advantage, value in zip(turns, before, strict=True)]
        tokens = at_tokens(turns, rollouts)
        if self._alone(world):
            tokens = [torch.zeros_like(row) for row in tokens]
        elif self.whiten:
            tokens = whitened(tokens, [trained_mask(rollout) for rollout in rollouts])
        return ValuedSignal(tokens, at_tokens(returns, rollouts), values)

    def learn(self, world: World, scored: Scored, signal: Signal, round_number: int) -> dict[str, float]:
        """Fit the critic to the returns at the beginning of each turn. Returns what is worth watching."""
        return self._fit(world, scored, signal, first_tokens(scored))


def first_tokens(scored: Scored) -> list[Tensor]:
    """Which tokens begin a turn that is trained on, [completions] tensors of [tokens of it], bool."""
    marks = []
    for rollout in scored.rollouts:
        mark = torch.zeros(len(rollout.completion), dtype=torch.bool)
        mark[[turn.start for turn in turns_of(rollout)]] = True
        marks.append(mark & trained_mask(rollout))
    return marks
