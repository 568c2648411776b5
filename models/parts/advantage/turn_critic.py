"""A critic of turns: temporal differences from one turn of the policy to its next, whatever text is between them.

    delta_t = r_t + gamma * V(s_t+1) - V(s_t)              s_t: all text before turn t; V after the last turn is zero
    A_t     = delta_t + gamma * gae_lambda * A_t+1         the same at every token of the turn
    R_t     = A_t + V(s_t)                                 the critic's target at s_t

The turn is the action, as in ArCHer (paper 76, arXiv 2402.19446), whose high level is an off-policy critic of
utterances with a replay buffer and whose low level gives every token of a turn that critic's advantage. Here the critic
learns on the round's own episodes, from the returns above, as that of `gae` does, and with `replay` also on those of
earlier rounds. In those, an older policy chose the turns that followed, so the target of such a turn is one step, r_t +
gamma * V(s_t+1), with V of the current critic. ArCHer's critic values utterances too (Q), so the choice of the turn
itself can be the current policy's. This one values states alone, so with replay it lags by one turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from pydantic import NonNegativeInt
from torch import Tensor

from models.base.bounds import Share
from models.method.advantage import Signal
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.method.scored import Scored
from models.parts.advantage.gae import generalised_advantages
from models.parts.shared.critic_advantage import CriticAdvantage, ValuedSignal
from models.parts.shared.of_turns import at_tokens, earned_by_turn, turns_of
from models.parts.shared.token_advantages import whitened
from models.reward_models.critic.fit import trained_mask

REMEMBERED = 1 << 20
"""Number above the groups of any round: the group numbers of each replayed round begin at a multiple of it."""


@part("turn_critic")
class TurnCritic(CriticAdvantage):
    """Generalised advantages of turns, from their rewards and a critic's value before each turn."""

    gae_lambda: Share = 0.95
    """Lambda: 0 is the one-turn error of the critic, 1 the return less its value."""
    gamma: Share = 1.0
    """Discount of a reward per turn."""
    whiten: bool = True
    """Whether the advantages of a round are normalised to mean zero and deviation one over all tokens."""
    replay: NonNegativeInt = 0
    """Number of earlier rounds whose episodes the critic learns from again."""

    @property
    def one_sequence(self) -> bool:
        """Whether episodes must be one sequence: true with replay.

        The replay memory keeps an episode's tokens, but not the context of each of them.
        """
        return self.remembers

    @property
    def remembers(self) -> bool:
        """Whether the critic also learns from the episodes of earlier rounds."""
        return self.replay > 0

    def __call__(self, resources: RunResources, scored: Scored) -> ValuedSignal:
        """Compute advantages token by token, equal within a turn; zeros while the critic learns alone."""
        rollouts = scored.rollouts
        values = self._values(resources, scored)
        before = self._before(values, rollouts)
        turns = generalised_advantages(earned_by_turn(scored), before, self.gamma, self.gae_lambda)
        returns = [advantage + value for advantage, value in zip(turns, before, strict=True)]
        tokens = at_tokens(turns, rollouts)
        if self._alone(resources):
            tokens = [torch.zeros_like(row) for row in tokens]
        elif self.whiten:
            tokens = whitened(tokens, [trained_mask(rollout) for rollout in rollouts])
        return ValuedSignal(tokens, at_tokens(returns, rollouts), values)

    def learn(self, resources: RunResources, scored: Scored, signal: Signal, round_number: int) -> dict[str, float]:
        """Fit the critic to the returns at the beginning of each turn. Returns metrics of the fit."""
        if not self.replay:
            return self._fit(resources, scored, signal, first_tokens(scored))
        assert isinstance(signal, ValuedSignal) and signal.returns is not None, "the signal is this part's own"
        memory = resources.learner.memory
        if again := self._again(resources, [rollout for rollouts in memory for rollout in rollouts]):
            old, returns, values = again
            together = Scored([*scored.rollouts, *old.rollouts], torch.cat([scored.rewards, old.rewards]), {}, {})
            both = ValuedSignal(signal.tokens, [*signal.returns, *returns], [*signal.values, *values])
        else:
            together, both = scored, signal
        seen = self._fit(resources, together, both, first_tokens(together))
        memory.append(_with_earned(scored, round_number))
        del memory[: -self.replay]
        return seen

    def _again(
        self, resources: RunResources, rollouts: list[Rollout]
    ) -> tuple[Scored, list[Tensor], list[Tensor]] | None:
        """Return episodes of earlier rounds, one-step targets at their tokens and the critic's values; None: none."""
        if not rollouts:
            return None
        earned = [torch.tensor([turn.reward for turn in turns_of(rollout)]) for rollout in rollouts]
        old = Scored(rollouts, torch.stack([row.sum() for row in earned]), {}, {})
        values = self._values(resources, old)
        before = self._before(values, rollouts)
        steps = generalised_advantages(earned, before, self.gamma, 0.0)
        targets = [step + value for step, value in zip(steps, before, strict=True)]
        return old, at_tokens(targets, rollouts), values

    def _before(self, values: Sequence[Tensor], rollouts: Sequence[Rollout]) -> list[Tensor]:
        """Return the critic's value before each turn, [completions] tensors of [tokens of it] -> of [turns of it]."""
        return [
            torch.stack([row[turn.start] for turn in turns_of(rollout)])
            for row, rollout in zip(values, rollouts, strict=True)
        ]


def _with_earned(scored: Scored, round_number: int) -> list[Rollout]:
    """Return episodes to remember: each turn holds its reward, and groups of different rounds stay separate."""
    remembered = []
    for rollout, row in zip(scored.rollouts, earned_by_turn(scored), strict=True):
        turns = tuple(
            turn._replace(reward=reward) for turn, reward in zip(turns_of(rollout), row.tolist(), strict=True)
        )
        group = (round_number + 1) * REMEMBERED + rollout.group
        episode = replace(rollout.episode, turns=turns)
        remembered.append(replace(rollout, episode=episode, group=group, behaviour_log_probs=None))
    return remembered


def first_tokens(scored: Scored) -> list[Tensor]:
    """Mark the tokens that begin a turn that is trained on, [completions] tensors of [tokens of it], bool."""
    marks = []
    for rollout in scored.rollouts:
        mark = torch.zeros(len(rollout.completion), dtype=torch.bool)
        mark[[turn.start for turn in turns_of(rollout)]] = True
        marks.append(mark & trained_mask(rollout))
    return marks
