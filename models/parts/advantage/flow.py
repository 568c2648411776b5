"""Flows of a forward-looking flow network: the log-probs that balance asks of the policy (FL-GFN, paper 115).

    F(s) = exp(r(s) / beta) F~(s)      flow through a beginning s; r(s): the rewards that were paid up to s
    d_t  = log F~(s_t) + log pi(y_t | s_t) - prior log p0(y_t | s_t) - r_t / beta - log F~(s_t+1)
    A_t  = log pi(y_t | s_t) - d_t     the log-prob that makes d_t zero; no gradient

A critic learns log F~, the value of what is still to come. Where every d_t is zero, completions are drawn in proportion
to p0^prior exp(r / beta), r the sum of all rewards, and F~ of the empty beginning is their normaliser. The objective
`forward_looking_balance` takes the squares of d_t. The backward flow is one, because text is written in one way only.

A reward counts from the token that it is paid at (`turn_rewards`, and others by token), so that each token has its own
loss. A completion that was cut is a beginning: log F~ after its last token ends its balance, and the reward of the
whole, which is not known, is left out. The critic's target is a mean over longer and longer parts of the completion,

    G_t = y_t + (1 - flow_lambda) log F~(s_t+1) + flow_lambda G_t+1,   y_t = r_t / beta + prior log p0 - log pi

With flow_lambda 0 the residuals d_t are those that were published; the flow after a token is held fixed in the critic's
fit, which the published loss moves too. A flow before an answer of an environment learns the mean of the log flows
after it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor

from models.base.bounds import Share
from models.base.errors import UserError
from models.learner.packing import PerToken, Sequences
from models.method.advantage import Signal
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout, parts_of
from models.method.scored import Scored
from models.parts.advantage.gae import generalised_advantages
from models.parts.shared.critic_advantage import CriticAdvantage, ValuedSignal, closed
from models.parts.shared.written_tokens import spread_rows, written_rows


def balanced(earned: PerToken, flows: PerToken, ends: Tensor) -> list[Tensor]:
    """Compute the log-prob of each token at which the flows balance, [completions] tensors of [tokens of it], nats.

    Args:
        earned: r_t / beta + prior log p0 of each token, likewise.
        flows: log F~ before each token, likewise.
        ends: log F~ after the last token, [completions]; zero for a completion that ended.
    """
    return [
        earn + torch.cat([flow[1:], end.to(flow)[None]]) - flow
        for earn, flow, end in zip(earned, flows, ends, strict=True)
    ]


def flow_targets(
    earned: PerToken, log_probs: PerToken, flows: PerToken, ends: Tensor, flow_lambda: float
) -> list[Tensor]:
    """Compute the critic's target G_t before each token, [completions] tensors of [tokens of it], nats.

    Args:
        earned: as in `balanced`.
        log_probs: log pi of each token, likewise.
        flows: log F~ before each token, likewise.
        ends: log F~ after the last token, [completions].
        flow_lambda: 0 reads the flow after one token, 1 that at the end.
    """
    paid = [earn - mine for earn, mine in zip(earned, log_probs, strict=True)]
    paid = [torch.cat([row[:-1], row[-1:] + end.to(row)]) for row, end in zip(paid, ends, strict=True)]
    gaps = generalised_advantages(paid, flows, 1.0, flow_lambda)
    return [gap + flow for gap, flow in zip(gaps, flows, strict=True)]


@part("flow")
class Flow(CriticAdvantage):
    """Log-probs of balance, for objective `forward_looking_balance` alone; the critic learns the flows."""

    companion = "flow"
    beta: PositiveFloat = 0.1
    """Units of reward that make a completion e times likelier."""
    prior: NonNegativeFloat = 1.0
    """Exponent of the reference in the target; with 0 the target depends on the reward alone."""
    flow_lambda: Share = 0.9
    """Weight of longer parts of a completion in the target of the flows; 0: single tokens, as published."""

    def __post_init__(self) -> None:
        """Raise an error for a critic that cannot represent a flow."""
        if self.critic.loss != "mse":
            raise ValueError(f"critic.loss is {self.critic.loss}, but a flow has no bounds; set critic.loss to mse")
        if self.critic.sees != "prompt":
            raise ValueError("critic.sees is privileged, but the policy can only balance flows of what it reads itself")

    @property
    def needs_reference(self) -> bool:
        """Whether the target depends on the reference."""
        return self.prior > 0

    def __call__(self, resources: RunResources, scored: Scored) -> ValuedSignal:
        """Compute the log-prob of balance at each token, and the flows' targets; while only the critic learns, the
        policy's own log-probs, at which the loss has no gradient.

        Raises:
            UserError: the prior is above zero, but the recipe has no reference.
        """
        rollouts, values = scored.rollouts, self._values(resources, scored)
        own = [row.cpu() for row in resources.readings.policy(rollouts)]
        flows, log_probs = written_rows(values, rollouts), written_rows(own, rollouts)
        earned = written_rows(self._earned(resources, scored), rollouts)
        earned = [row.to(flow) for row, flow in zip(earned, flows, strict=True)]
        ends = self._ends(resources, rollouts)
        returns = spread_rows(flow_targets(earned, log_probs, flows, ends, self.flow_lambda), rollouts)
        tokens = log_probs if self._alone(resources) else balanced(earned, flows, ends)
        return ValuedSignal(spread_rows(tokens, rollouts), returns, values)

    def learn(self, resources: RunResources, scored: Scored, signal: Signal, round_number: int) -> dict[str, float]:
        """Fit the flows to the round's targets. Returns metrics of the fit."""
        return self._fit(resources, scored, signal)

    def _earned(self, resources: RunResources, scored: Scored) -> list[Tensor]:
        """Return r_t / beta + prior log p0 at each token, [completions] tensors of [tokens of it], nats."""
        earned = [row / self.beta for row in paid_by_token(scored)]
        if not self.prior:
            return earned
        reference = resources.readings.reference(scored.rollouts)
        if reference is None:
            raise UserError(f"advantage.prior is {self.prior}, but the recipe has no reference: set it to 0")
        return [row + self.prior * other.cpu().to(row) for row, other in zip(earned, reference, strict=True)]

    def _ends(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return log F~ after the last token, [completions], nats; zero for a completion that ended."""
        cut = [index for index, rollout in enumerate(rollouts) if not rollout.finished]
        ends = torch.zeros(len(rollouts))
        if cut:
            longer = [closed(parts_of([rollouts[index]])[-1]) for index in cut]
            sequences = Sequences([each.problem.tokens for each in longer], [each.completion for each in longer])
            rows = self._read(resources, sequences)
            ends[cut] = torch.stack([row[-1] for row in rows]).to(ends)
        return ends


def paid_by_token(scored: Scored) -> list[Tensor]:
    """Return the rewards at the tokens where they are paid, [completions] tensors of [tokens of it].

    The reward of a completion as a whole is at its last token if it ended, and nowhere if it was cut.
    """
    rows = scored.rewards_by_token()
    known = scored.token_rewards
    return [
        row if rollout.finished else torch.zeros_like(row) if known is None else known[index].to(row)
        for index, (row, rollout) in enumerate(zip(rows, scored.rollouts, strict=True))
    ]
