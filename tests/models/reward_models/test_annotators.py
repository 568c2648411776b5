"""Groups of annotators: both steps of the expectation-maximisation by hand, and the handling of an empty group."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from models.reward_models.annotators import (
    PairsAt,
    annotators_of,
    first_groups,
    held_out_groups,
    likelihoods,
    nearest_groups,
)
from models.reward_models.fit import Pair


def pairs(*prompts: int) -> list[Pair]:
    return [Pair((prompt, 9), (number,), (number + 1,)) for number, prompt in enumerate(prompts)]


def logit(share: float) -> float:
    return math.log(share / (1 - share))


def test_pairs_of_a_prompt_are_of_one_annotator_and_numbered_as_they_appear() -> None:
    assert annotators_of(pairs(7, 3, 7, 5, 3)).tolist() == [0, 1, 0, 2, 1]
    assert annotators_of([]).tolist() == []


def test_an_annotator_is_as_likely_as_all_pairs_together() -> None:
    margins = torch.tensor([[logit(0.8), logit(0.5), logit(0.1)], [0.0, 0.0, 0.0]], dtype=torch.float64)
    known = likelihoods(margins, np.array([0, 1, 0]))
    expected = [[math.log(0.8 * 0.1), math.log(0.5)], [math.log(0.25), math.log(0.5)]]
    assert torch.allclose(known, torch.tensor(expected, dtype=torch.float64))


def test_the_groups_begin_by_how_well_a_pair_of_each_is_explained_and_not_by_how_many_there_are() -> None:
    annotators = np.array([0, 1, 1, 1, 2, 3])
    # By the sum over pairs, the second annotator (three pairs) is less likely than the fourth; by the mean, more
    # likely.
    margins = torch.tensor([-1.0, 0.9, 0.9, 0.9, 2.0, 0.5])
    assert first_groups(margins, annotators, 2).tolist() == [1, 0, 0, 1]
    assert sorted(first_groups(margins, annotators, 4).tolist()) == [0, 1, 2, 3]


def test_everybody_goes_to_the_group_that_explains_all_pairs_best() -> None:
    annotators = np.array([0, 0, 1, 2])
    margins = torch.tensor([[1.0, -3.0, 2.0, 0.0], [-1.0, 1.0, -2.0, 0.0]])
    # First annotator, two pairs: log s(1) + log s(-3) = -3.36 < log s(-1) + log s(1) = -1.63. A tie: the first group.
    assert nearest_groups(margins, annotators).tolist() == [1, 0, 0]


def test_a_group_that_nobody_is_nearest_to_is_given_whom_it_explains_best() -> None:
    margins = torch.tensor([[3.0, 3.0, 3.0], [1.0, 2.0, 0.5]])
    assert nearest_groups(margins, np.array([0, 1, 2])).tolist() == [0, 1, 0]
    alone = nearest_groups(torch.tensor([[3.0], [1.0]]), np.array([0]))
    assert alone.tolist() == [0]  # the only member of a group is not moved


def test_a_held_out_pair_is_judged_by_the_group_that_its_annotators_other_pairs_speak_for() -> None:
    annotators = np.array([0, 0, 1])
    margins = torch.tensor([[5.0, -5.0, 5.0], [-5.0, 5.0, -5.0]])
    # Two pairs of one annotator: each is judged by the group that the other one indicates, never by its own.
    assert held_out_groups(margins, annotators, (0.5, 0.5)).tolist() == [1, 0, 0]
    # An annotator with a single pair has no other pairs, so only the shares decide.
    assert held_out_groups(margins, annotators, (0.2, 0.8)).tolist() == [1, 0, 1]


def test_some_pairs_are_read_as_a_list_of_them_would_be() -> None:
    many = pairs(1, 2, 3, 4)
    some = PairsAt(many, np.array([3, 0, 2]))
    assert [some[place] for place in range(len(some))] == [many[3], many[0], many[2]]
    assert list(some[1:]) == [many[0], many[2]] and not PairsAt(many, np.array([], dtype=np.int64))


def loglikelihood(tastes: Tensor, groups: np.ndarray, annotators: np.ndarray, apart: Tensor) -> float:
    """Compute the log-likelihood of all pairs under the tastes of their annotators' groups."""
    return float(likelihoods(tastes @ apart.T, annotators)[torch.from_numpy(groups), range(len(groups))].sum())


@pytest.mark.parametrize("seed", range(3))
def test_people_of_two_tastes_are_told_apart_and_no_round_makes_the_pairs_unlikelier(seed: int) -> None:
    """Rewards are linear in two features. Of sixty annotators, a fifth has the opposite taste of the others."""
    generator = torch.Generator().manual_seed(seed)
    annotators = np.repeat(np.arange(60), 8)
    truth = np.arange(60) >= 48
    apart = torch.randn(480, 2, generator=generator, dtype=torch.float64)  # features of the first minus the second
    wanted = (
        apart @ torch.tensor([2.0, 1.0], dtype=torch.float64) * torch.tensor([1.0, -1.0])[truth[annotators].astype(int)]
    )
    apart = apart * torch.where(torch.rand(480, generator=generator) < torch.sigmoid(wanted), 1.0, -1.0)[:, None]

    def fit(of: Tensor) -> Tensor:
        taste = torch.zeros(2, dtype=torch.float64, requires_grad=True)
        learn = torch.optim.LBFGS([taste], max_iter=50, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            learn.zero_grad()
            value = -torch.nn.functional.logsigmoid(of @ taste).mean() + 1e-3 * taste.square().sum()
            value.backward()
            return value

        learn.step(loss)
        return taste.detach()

    groups, before = first_groups(apart @ fit(apart), annotators, 2), -math.inf
    for _ in range(4):
        tastes = torch.stack([fit(apart[torch.from_numpy(groups[annotators] == number)]) for number in range(2)])
        groups = nearest_groups(tastes @ apart.T, annotators)
        after = loglikelihood(tastes, groups, annotators, apart)
        assert after >= before - 0.5  # the penalty of the fit may lower the likelihood a little
        before = after
    minority = groups == (1 if (groups[truth] == 1).mean() > 0.5 else 0)
    assert (minority == truth).mean() > 0.93
