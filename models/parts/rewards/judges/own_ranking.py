"""The policy as its own judge, and the agreement of an earlier policy with it (paper 345, "CREAM").

    own_likelihood        s = mean, or sum, over the tokens of log pi, or of log pi0 of the reference
    ranking_consistency   C = (tau + 1) / 2,   tau = Kendall's rank correlation of s under pi and s under the reference
    reference_coverage    -log pi0 of the likeliest completion of the prompt

tau is the mean of sign(s_i - s_j) * sign(s'_i - s'_j) over all pairs of completions of a prompt: 1 if both rankings are
equal, -1 if one is the reverse of the other. C near 1/2 or below means that the ranking is noise of this round, so
pairs made from it are unreliable.

Derived from the paper's abstract and its summary. The paper ranks offline in iterations and uses one C for a whole
iteration. Here every prompt has its own, and the earlier policy is the recipe's reference: with `previous_round` the
policy some rounds ago. Right after the reference is set to the policy, C is 1.

Sharpening (paper 344) makes the likeliest answers of a fixed policy, the reference, likelier still: `own_likelihood` of
the reference, summed, is its reward. The best of N samples is the likeliest answer with a probability of 1 - (1 -
exp(-c))^N, where c is the coverage: with a large c, few samples hold an answer to imitate. The paper's coefficient is
the mean over prompts of exp(c); the metric is the mean of c, at most its logarithm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

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


def _under_policy(resources: RunResources, rollouts: Sequence[Rollout]) -> PerToken:
    """Return log-probs under the policy, [completions] tensors of [tokens of it], nats.

    The engine's log-probs are used if it recorded all of them.
    """
    log_probs = [rollout.behaviour_log_probs for rollout in rollouts if rollout.behaviour_log_probs is not None]
    return log_probs if len(log_probs) == len(rollouts) else resources.readings.policy(rollouts)


def _means(rows: PerToken, rollouts: Sequence[Rollout], reduced: Callable[[Tensor], Tensor] = torch.mean) -> Tensor:
    """Return the mean, or another reduction, over the tokens that the policy wrote, [completions]."""
    return torch.stack([reduced(row.detach().double()).cpu() for row in written_rows(rows, rollouts)]).float()


def _under_reference(resources: RunResources, rollouts: Sequence[Rollout], reader: str) -> PerToken:
    """Return log-probs under the reference, [completions] tensors of [tokens of it], nats.

    Raises:
        UserError: the recipe has no reference.
    """
    rows = resources.readings.reference(rollouts)
    if rows is None:
        raise UserError(f"reward {reader} reads the reference, but the recipe has none: set reference.name to frozen")
    return rows


@part("own_likelihood")
class OwnLikelihood(Reward):
    """Log-prob of a completion under the policy or the reference, its mean per token or its sum."""

    reads_learner = True
    of: Literal["policy", "reference"] = "policy"
    """The model whose log-probs are read. The policy's change in every round, the reference's stay the same."""
    over: Literal["mean", "sum"] = "mean"
    """mean: log-prob per token; sum: of the whole completion, which prefers short ones."""

    @property
    def needs_reference(self) -> bool:
        """Whether the reference is read."""
        return self.of == "reference"

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return the mean or sum of the log-probs of each completion's tokens, [completions], nats, <= 0.

        A completion that was cut gets the least value of all: an endless loop gets likelier with every token.

        Raises:
            UserError: the reference is to be read, but the recipe has none.
        """
        if self.of == "reference":
            rows = _under_reference(resources, rollouts, self.label)
        else:
            rows = _under_policy(resources, rollouts)
        return worst_where_cut(_means(rows, rollouts, torch.mean if self.over == "mean" else torch.sum), rollouts)


@part("reference_coverage")
class ReferenceCoverage(Reward):
    """How unlikely the reference's likeliest completion of a prompt is; a quantity to watch, not a reward."""

    reads_learner = True

    needs_reference = True
    weight: Number = 0.0
    """Zero: it measures the reference, and not a completion."""

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return -log pi0 of the group's likeliest completion for each of its completions, [completions], nats, >= 0.

        It is an upper bound, because a likelier completion may not have been sampled. Completions that were cut are
        beginnings, which are likelier than any whole: they count only in a group in which none ended.

        Raises:
            UserError: the recipe has no reference.
        """
        rows = _under_reference(resources, rollouts, self.label)
        values, groups = -_means(rows, rollouts, torch.sum), groups_of(rollouts)
        ended = torch.tensor([rollout.finished for rollout in rollouts])
        least = torch.empty_like(values)
        for number in groups.unique().tolist():
            members = groups == number
            able = members & ended
            least[members] = values[able if able.any() else members].min()
        return least


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
        now, before = _means(_under_policy(resources, rollouts), rollouts), _means(earlier, rollouts)
        groups = groups_of(rollouts)
        consistency = torch.full((len(rollouts),), 0.5)
        for number in groups.unique().tolist():
            members = groups == number
            if int(members.sum()) > 1:
                consistency[members] = (kendall_tau(now[members], before[members]) + 1.0) / 2.0
        return consistency
