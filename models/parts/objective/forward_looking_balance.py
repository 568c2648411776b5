"""Forward-looking detailed balance: the policy samples in proportion to the reward (FL-GFN, paper 115).

    loss of a token = (log pi - A)^2,   A: the log-prob that balances the flows before and after the token

Source: "Better Training of GFlowNets with Local Credit and Incomplete Trajectories". The flows, the rewards and the
reference are in A (advantage `flow`, which has the formulas). `trajectory_balance` has one residual for a whole
completion, the sum of those here; with rewards at single tokens each residual here has only the rewards that were paid
at its own token, and a completion that was cut has residuals too. The loss is zero, for completions of any sampler,
exactly where the policy is the target and the flows are its flows. So no importance weight is needed.
"""

from __future__ import annotations

from torch import Tensor

from models.method.objective import Objective
from models.method.registry import part
from models.method.token_batch import TokenBatch


@part("forward_looking_balance")
class ForwardLookingBalance(Objective):
    """Squared residual of the balance at each token; needs `advantage: {name: flow}`."""

    level = "token"
    needs_companion = "flow"

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the squared residual of each token, [tokens], nats squared.

        Args:
            log_prob: log pi of each token, [tokens], nats; gradient flows.
            batch: log-probs of balance as the advantage, [tokens], nats.
        """
        residual = log_prob - batch.advantage
        return residual**2, {"imbalance": residual.detach().abs()}
