"""The outcome distributed over the turns that led to it (SPA-RL, paper 195, arXiv 2505.20732).

An estimator gives each turn a share, and the shares add up to the outcome.

    c_t = f(all up to the end of turn t)            loss of f = 1/2 (sum of c_t - R)^2       R: reward of the episode
    r_t = c_t + (R - sum of c_u) / T                so the turns' rewards add up to R, however wrong f is
    A_t = sum over u >= t of gamma^(u - t) * r_u, less the mean of the group's others at the same turn

The paper adds a reward for actions that could be executed, which is the environment's own here (`turn_rewards`), and
fits f beforehand. Here f learns together with the policy, on the round's episodes, and at first alone
(`critic.pretraining`). If rewards of turns are given too, they are part of R and distributed with it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from models.base.bounds import Share
from models.learner.rows import rows_of
from models.learner.whole_weights import ranks_of
from models.method.advantage import Signal
from models.method.episode_parts import episodes_together, owners_of, places_of, sums_of_row
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout, parts_of
from models.method.schedule import BUDGET_KEY
from models.method.scored import Scored
from models.parts.shared.critic_advantage import CriticAdvantage, ValuedSignal
from models.parts.shared.of_turns import at_tokens, less_the_others, returns_to_go, turns_of
from models.reward_models.critic.fit import critic_of, seen_by, trained_mask
from models.reward_models.critic.losses import values_of


def summing_to(shares: Tensor, outcome: Tensor) -> Tensor:
    """Add the difference between `outcome`, a scalar, and the sum of `shares` [turns] to the shares in equal parts."""
    return shares + (outcome.to(shares) - shares.sum()) / len(shares)


@part("redistributed")
class Redistributed(CriticAdvantage):
    """Shares of the outcome from each turn on, less the mean of the group's others; estimated by a critic's network."""

    needs_group = True
    companion = "progress"
    gamma: Share = 1.0
    """Discount of a share per turn."""

    def __call__(self, resources: RunResources, scored: Scored) -> ValuedSignal:
        """Compute advantages token by token, equal within a turn; zeros while the estimator learns alone."""
        rollouts, values = scored.rollouts, self._values(resources, scored)
        shares = [
            summing_to(_at_ends(row, rollout), outcome)
            for row, rollout, outcome in zip(values, rollouts, scored.rewards, strict=True)
        ]
        returns = returns_to_go(shares, self.gamma)
        turns = less_the_others(returns, [list(range(len(row))) for row in returns], scored.groups)
        if self._alone(resources):
            turns = [torch.zeros_like(row) for row in turns]
        return ValuedSignal(at_tokens(turns, rollouts), None, values)

    def learn(self, resources: RunResources, scored: Scored, signal: Signal, round_number: int) -> dict[str, float]:
        """Fit the sums of the shares to the outcomes. Returns the squared error before the last step."""
        companion = resources.learner.companions[self.companion]
        critic, rollouts = critic_of(companion), scored.rollouts
        counted = [index for index, rollout in enumerate(rollouts) if trained_mask(rollout).any()]
        parts, owners, places = parts_of(rollouts), owners_of(rollouts), places_of(rollouts)
        error, norm = 0.0, 0.0
        critic.eval()
        for _ in range(self.critic.epochs if counted else 0):
            squares = 0.0
            for row in rows_of(
                critic,
                seen_by(critic, scored),
                resources.token_budget,
                among=[place for index in counted for place in places[index]],
                together=episodes_together(rollouts),
                setting=BUDGET_KEY,
            ):
                token_values = values_of(critic.outputs(row.sequences, resources.learner.autocast), critic.settings)
                rows = token_values.split([len(parts[place].completion) for place in row.indices])
                shares = [_at_ends(values, parts[place]).sum() for values, place in zip(rows, row.indices, strict=True)]
                wholes, sums = sums_of_row(shares, row.indices, owners)
                loss = (sums - scored.rewards[wholes].to(sums)).square().sum() / (2 * len(counted))
                row.backward(loss)
                squares += row.counts * 2 * float(loss.detach())
            error = ranks_of(critic).sums({"error": squares})["error"]
            norm = companion.step(self.critic.optimiser, "advantage.critic.optimiser")
        return {"squared_error": error, "gradient_norm": norm} if counted else {}


def _at_ends(values: Tensor, rollout: Rollout) -> Tensor:
    """Return the values before the last token of each turn, [tokens] -> [turns]."""
    return values[[turn.stop - 1 for turn in turns_of(rollout)]]
