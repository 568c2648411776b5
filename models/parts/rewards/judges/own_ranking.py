"""The policy as its own judge, and the agreement of an earlier policy with it (paper 345, "CREAM").

    own_likelihood        s = mean over the tokens of log pi
    ranking_consistency   C = (tau + 1) / 2,   tau = Kendall's rank correlation of s under pi and s under the reference

tau is the mean of sign(s_i - s_j) * sign(s'_i - s'_j) over all pairs of completions of a prompt: 1 if both rankings are
equal, -1 if one is the reverse of the other. C near 1/2 or below means that the ranking is noise of this round, so
pairs made from it are unreliable.

Derived from the paper's abstract and its summary. The paper ranks offline in iterations and uses one C for a whole
iteration. Here every prompt has its own, and the earlier policy is the recipe's reference: with `previous_round` the
policy some rounds ago. Right after the reference is set to the policy, C is 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.base.bounds import Number
from models.base.errors import UserError
from models.learner.packing import PerToken
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout, groups_of
from models.method.truncation import worst_where_cut
from models.parts.shared.written_tokens import written_rows


def kendall_tau(scores: Tensor, other: Tensor) -> float:
    """Return the rank correlation of two lists of scores, [completions] each, in [-1, 1]; tied pairs count zero."""
    first, second = torch.triu_indices(len(scores), len(scores), offset=1)
    agreement = torch.sign(scores[first] - scores[second]) * torch.sign(other[first] - other[second])
    return float(agreement.mean())


def _under_policy(resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
    """Return the mean log pi per token of each completion, [completions], nats.

    The engine's log-probs are used if it recorded all of them.
    """
    log_probs = [rollout.behaviour_log_probs for rollout in rollouts if rollout.behaviour_log_probs is not None]
    return _means(log_probs if len(log_probs) == len(rollouts) else resources.readings.policy(rollouts), rollouts)


def _means(rows: PerToken, rollouts: Sequence[Rollout]) -> Tensor:
    """Return the mean over the tokens that the policy wrote, [completions]."""
    return torch.stack([row.detach().double().mean().cpu() for row in written_rows(rows, rollouts)]).float()


@part("own_likelihood")
class OwnLikelihood(Reward):
    """Mean log-prob per token of a completion under the policy."""

    reads_learner = True

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return the mean log-prob of the tokens of each completion, [completions], nats, <= 0.

        A completion that was cut gets the least value of all: an endless loop gets likelier with every token.
        """
        return worst_where_cut(_under_policy(resources, rollouts), rollouts)


@part("ranking_consistency")
class RankingConsistency(Reward):
    """Agreement of policy and reference on the ranking of completions: a label for `soft_dpo`, rarely a reward."""

    reads_learner = True

    needs_reference = True
    weight: Number = 0.0
    """Zero: it measures the reliability of other rewards, and not a completion."""

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return the group's consistency in [0, 1] for each of its completions, [completions].

        It is 1/2 for a single completion.

        Raises:
            UserError: the recipe has no reference to compare with.
        """
        earlier = resources.readings.reference(rollouts)
        if earlier is None:
            raise UserError(
                "reward ranking_consistency needs a reference to compare with: reference.name: previous_round"
            )
        now, before = _under_policy(resources, rollouts), _means(earlier, rollouts)
        groups = groups_of(rollouts)
        consistency = torch.full((len(rollouts),), 0.5)
        for number in groups.unique().tolist():
            members = groups == number
            if int(members.sum()) > 1:
                consistency[members] = (kendall_tau(now[members], before[members]) + 1.0) / 2.0
        return consistency
