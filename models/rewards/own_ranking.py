"""The policy as its own judge, and how far an earlier policy agrees with it (paper 345, "CREAM").

    own_likelihood        s = mean over the tokens of log pi
    ranking_consistency   C = (tau + 1) / 2,   tau = Kendall's rank correlation of s under pi and s under the reference

tau is the mean of sign(s_i - s_j) * sign(s'_i - s'_j) over all pairs of completions of a prompt: 1 where both rank them
alike, -1 where one ranking is the other turned round. C near 1/2 or below says that the ranking is noise of this very
round, and that pairs made from it are to be believed no further.

Derived from the paper's abstract and its summary. The paper ranks offline in iterations and takes one C for a whole
iteration; here every prompt has its own, and the earlier policy is the recipe's reference: with `previous_round` the
policy some rounds ago. Right after the reference has become the policy both agree, and C is 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.bounds import Number
from models.errors import UserError
from models.formulas.written_tokens import written_rows
from models.loop.rollout import Rollout, groups_of
from models.loop.slots import Reward
from models.loop.truncation import worst_where_cut
from models.loop.world import World
from models.parts import part


def kendall_tau(scores: Tensor, other: Tensor) -> float:
    """Rank correlation of two lists of scores, [completions] each, in [-1, 1]; pairs that tie in either count zero."""
    first, second = torch.triu_indices(len(scores), len(scores), offset=1)
    agreement = torch.sign(scores[first] - scores[second]) * torch.sign(other[first] - other[second])
    return float(agreement.mean())


def _under_policy(world: World, rollouts: Sequence[Rollout]) -> Tensor:
    """Mean log pi a token of each completion, [completions], nats; as the engine said, where it drew them all."""
    said = [rollout.behaviour_log_probs for rollout in rollouts if rollout.behaviour_log_probs is not None]
    return _means(said if len(said) == len(rollouts) else world.readings.policy(rollouts), rollouts)


def _means(rows: Sequence[Tensor], rollouts: Sequence[Rollout]) -> Tensor:
    """Over the tokens that the policy wrote, [completions]."""
    return torch.stack([row.detach().double().mean().cpu() for row in written_rows(rows, rollouts)]).float()


@part("own_likelihood")
class OwnLikelihood(Reward):
    """How likely the policy finds its completion, by token."""

    reads_learner = True

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """Mean log-prob of the tokens of each completion, [completions], nats, <= 0; of one that was cut the least of
        all: a loop that never ends is likelier with every token."""
        return worst_where_cut(_under_policy(world, rollouts), rollouts)


@part("ranking_consistency")
class RankingConsistency(Reward):
    """How alike policy and reference rank the completions of a prompt: a label for `soft_dpo`, rarely a reward."""

    reads_learner = True

    needs_reference = True
    weight: Number = 0.0
    """Zero: it says how sure the other rewards are, not what a completion is worth."""

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """The group's consistency in [0, 1] at each of its completions, [completions]; 1/2 for one that is alone.

        Raises:
            UserError: the recipe has no reference to compare with.
        """
        earlier = world.readings.reference(rollouts)
        if earlier is None:
            raise UserError(
                "reward ranking_consistency needs a reference to compare with: reference.name: previous_round"
            )
        now, before = _under_policy(world, rollouts), _means(earlier, rollouts)
        groups = groups_of(rollouts)
        consistency = torch.full((len(rollouts),), 0.5)
        for number in groups.unique().tolist():
            members = groups == number
            if int(members.sum()) > 1:
                consistency[members] = (kendall_tau(now[members], before[members]) + 1.0) / 2.0
        return consistency
