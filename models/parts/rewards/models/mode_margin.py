"""Margin between the modes of a policy: how much its own mode explains an answer better than any other (paper 245).

    margin = log pi(y | x, m) - max over m' != m of log pi(y | x, m')

m is the mode that the completion was written in, the last token of its prompt (rollouts conditioned with modes). A
policy that ignores the token has margin 0. The mean over a round is logged as the reward's own metric, `separated` is
the share of completions with a margin above 0: the modes of these can be recognised by the policy's own likelihood.

The paper's Safety Alignment Margin is the silhouette coefficient of the first token's logits, grouped by mode. This is
a margin of likelihoods on the round's own completions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.base.bounds import Number
from models.base.errors import UserError
from models.learner.packing import Sequences
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reasoned, ReasonedReward
from models.method.rollout import Rollout
from models.parts.rollouts.conditioned import single_tokens


@part("mode_margin")
class ModeMargin(ReasonedReward):
    """Log-likelihood of an answer in its own mode less that in the best other mode, nats."""

    reads_learner = True
    one_sequence = True
    weight: Number = 0.0
    """Zero: it measures the policy, and is not a reward of a completion."""
    tokens: tuple[str, ...] = ()
    """Texts of the modes' tokens, as in rollouts.modes."""

    @property
    def misfit(self) -> str:
        """Error message if there are fewer than two modes; empty if there is a margin."""
        if len(self.tokens) > 1:
            return ""
        return f"rewards.{self.label}.tokens: {len(self.tokens)} named; name those of two modes or more"

    def reasoned(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Reasoned:
        """Compute the margin of each completion, [completions], nats.

        Raises:
            UserError: a prompt does not end with the token of a mode, or a text is not a single token.
        """
        ids = list(single_tokens(resources.codec, self.tokens, f"rewards.{self.label}.tokens").values())
        own = [rollout.problem.tokens[-1] for rollout in rollouts]
        if strangers := [index for index, token in enumerate(own) if token not in ids]:
            raise UserError(
                f"reward {self.label}: the prompt of row {rollouts[strangers[0]].problem.id} does not end with a "
                "mode's token; set rollouts.name to conditioned with the same modes"
            )
        completions = [rollout.completion for rollout in rollouts]
        sums = []
        for token in ids:
            prompts = [(*rollout.problem.tokens[:-1], token) for rollout in rollouts]
            rows = resources.readings.under(resources.learner.policy, Sequences(prompts, completions), rollouts)
            sums.append(torch.stack([row.double().sum() for row in rows]))
        margins = margins_of(torch.stack(sums, dim=1), torch.tensor([ids.index(token) for token in own]))
        watched = {"separated": float((margins > 0).double().mean()) if len(rollouts) else 0.0}
        return Reasoned(margins.float().cpu(), [""] * len(rollouts), watched)


def margins_of(log_likelihoods: Tensor, own: Tensor) -> Tensor:
    """Return the log-likelihood in the own mode less the largest of the others, [completions].

    Args:
        log_likelihoods: log-likelihood of each completion in each mode, [completions, modes], nats.
        own: index of the mode of each completion, [completions], int64.
    """
    mine = log_likelihoods.gather(1, own[:, None].to(log_likelihoods.device)).squeeze(1)
    others = log_likelihoods.scatter(1, own[:, None].to(log_likelihoods.device), -torch.inf)
    return mine - others.max(dim=1).values
