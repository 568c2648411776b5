"""Self-judged rankings and their consistency: Kendall's tau, the policy's likelihood, and the reference."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest
import torch
from torch import nn

from models.base.errors import UserError
from models.learner.packing import Sequences
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.rewards.judges.own_ranking import (
    OwnLikelihood,
    RankingConsistency,
    ReferenceCoverage,
    kendall_tau,
)
from tests.support.tiny_loops import SCHEDULE, new_learner
from tests.support.tiny_models import COMPLETIONS, SEQUENCES, plain_log_probs, scored, tiny_policy
from tests.support.tiny_resources import make_resources

GROUPS = Sequences([[3, 4, 5]] * 4 + [[6]], COMPLETIONS[:4] + COMPLETIONS[4:])


def resources_of(policy: nn.Module, reference: nn.Module | None) -> RunResources:
    learner = new_learner(SCHEDULE)
    learner.policy, learner.reference = policy, reference
    return make_resources(learner=learner)


def unknown_sampler(sequences: Sequences, sizes: Sequence[int]) -> list[Rollout]:
    """Return completions without the log-probs of their sampler."""
    rollouts = scored([0.0] * len(sequences.prompts), sizes, sequences=sequences).rollouts
    return [replace(rollout, behaviour_log_probs=None) for rollout in rollouts]


def means(policy: nn.Module, sequences: Sequences) -> list[float]:
    return [float(row.mean()) for row in plain_log_probs(policy, sequences)]


@pytest.mark.parametrize(
    ("left", "other", "tau"),
    [
        ([1, 2, 3], [10, 20, 30], 1.0),
        ([1, 2, 3], [3, 2, 1], -1.0),
        ([1, 2, 3], [1, 3, 2], 1 / 3),
        ([1, 2, 3, 4], [2, 1, 4, 3], 1 / 3),
        ([1, 1, 3], [1, 2, 3], 2 / 3),
    ],
)
def test_kendalls_tau_by_hand(left: list[int], other: list[int], tau: float) -> None:
    first, second = (torch.tensor(values, dtype=torch.float64) for values in (left, other))
    assert kendall_tau(first, second) == pytest.approx(tau)


def test_own_likelihood_is_the_mean_log_prob_a_token_under_the_policy() -> None:
    policy = tiny_policy()
    values = OwnLikelihood()(resources_of(policy, None), unknown_sampler(SEQUENCES, [1] * 5))
    assert values.tolist() == pytest.approx(means(policy, SEQUENCES), rel=1e-5)


def test_where_the_engine_told_its_log_probs_no_model_reads_again() -> None:
    rollouts = [
        replace(rollout, behaviour_log_probs=-torch.arange(1.0, len(rollout.completion) + 1))
        for rollout in unknown_sampler(SEQUENCES, [1] * 5)
    ]
    assert OwnLikelihood()(make_resources(), rollouts).tolist() == [-1.5, -2.5, -1.0, -3.5, -2.0]


def test_a_policy_agrees_wholly_with_itself_and_a_completion_alone_says_nothing() -> None:
    policy = tiny_policy()
    values = RankingConsistency()(resources_of(policy, policy), unknown_sampler(GROUPS, [4, 1]))
    assert values.tolist() == [1.0, 1.0, 1.0, 1.0, 0.5]


def test_consistency_is_the_share_of_pairs_that_both_policies_order_alike() -> None:
    shares = set()
    for seed in (1, 2, 3):
        policy, reference = tiny_policy(), tiny_policy(seed=seed)
        now, before = means(policy, GROUPS)[:4], means(reference, GROUPS)[:4]
        alike = [(now[i] > now[j]) == (before[i] > before[j]) for i, j in combinations(range(4), 2)]
        values = RankingConsistency()(resources_of(policy, reference), unknown_sampler(GROUPS, [4, 1]))
        assert values[:4].tolist() == pytest.approx([sum(alike) / 6] * 4)
        shares.add(sum(alike))
    assert len(shares) > 1


def test_without_a_reference_there_is_nothing_to_compare_with() -> None:
    with pytest.raises(UserError, match="needs a reference"):
        RankingConsistency()(resources_of(tiny_policy(), None), unknown_sampler(GROUPS, [4, 1]))


def test_the_reference_is_read_and_log_probs_are_summed_where_this_is_set() -> None:
    policy, reference = tiny_policy(), tiny_policy(seed=5)
    resources = resources_of(policy, reference)
    rollouts = unknown_sampler(SEQUENCES, [1] * 5)
    sums = [float(row.sum()) for row in plain_log_probs(reference, SEQUENCES)]
    values = OwnLikelihood(of="reference", over="sum")(resources, rollouts)
    assert values.tolist() == pytest.approx(sums, rel=1e-5)
    assert OwnLikelihood(of="reference")(resources, rollouts).tolist() == pytest.approx(
        means(reference, SEQUENCES), rel=1e-5
    )
    assert OwnLikelihood(of="reference").needs_reference and not OwnLikelihood().needs_reference


def test_coverage_is_the_least_negative_log_prob_of_a_group_among_the_completions_that_ended() -> None:
    reference = tiny_policy(seed=5)
    resources = resources_of(tiny_policy(), reference)
    costs = [-float(row.sum()) for row in plain_log_probs(reference, GROUPS)]
    rollouts = unknown_sampler(GROUPS, [4, 1])
    values = ReferenceCoverage()(resources, rollouts)
    assert values.tolist() == pytest.approx([min(costs[:4])] * 4 + [costs[4]], rel=1e-5)
    likeliest = costs.index(min(costs[:4]))
    cut = [replace(rollout, finished=place != likeliest) for place, rollout in enumerate(rollouts)]
    rest = min(cost for place, cost in enumerate(costs[:4]) if place != likeliest)
    assert ReferenceCoverage()(resources, cut)[:4].tolist() == pytest.approx([rest] * 4, rel=1e-5)
    alone = [replace(rollout, finished=False) for rollout in rollouts]
    assert ReferenceCoverage()(resources, alone).tolist() == pytest.approx(values.tolist(), rel=1e-5)


def test_without_a_reference_neither_has_a_value() -> None:
    for reward in (OwnLikelihood(of="reference"), ReferenceCoverage()):
        with pytest.raises(
            UserError, match=r"reads the reference, but the recipe has none: set reference\.name to frozen"
        ):
            reward(resources_of(tiny_policy(), None), unknown_sampler(GROUPS, [4, 1]))
