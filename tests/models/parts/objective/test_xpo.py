"""Optimistic DPO: DPO as a limit, and the exact gradient of its exploration term."""

from itertools import product

import pytest
import torch
from torch import Tensor

from models.parts.objective.dpo import Dpo
from models.parts.objective.xpo import Xpo, explored_share
from tests.support.enumerable_pairs import PAIRS, REFERENCE, batch_of_pairs, losses, mean_gradient

LOGITS = torch.tensor([1.5, -0.3, 0.4, -2.0], dtype=torch.float64)
POLICY = LOGITS.softmax(0)
ALL = torch.tensor(list(product(range(4), repeat=2)))
"""All pairs of draws, equal ones included, [16, 2]."""


def optimism(chance: Tensor, origins: list[str], pairs: Tensor = ALL) -> Tensor:
    """Return the exact gradient of the expected exploration term alone with respect to the logits, [answers]."""
    metrics = {"origins": origins * len(pairs)}
    with_term = mean_gradient(Xpo(alpha=1.0, beta=0.3), LOGITS, chance, pairs, **metrics)
    return with_term - mean_gradient(Xpo(alpha=0.0, beta=0.3), LOGITS, chance, pairs, **metrics)


def test_without_optimism_it_is_dpo() -> None:
    torch.testing.assert_close(losses(Xpo(alpha=0.0, beta=0.3), LOGITS), losses(Dpo(beta=0.3), LOGITS))


def test_a_pair_by_hand() -> None:
    log_prob = torch.tensor([[-1.0, -3.0]], dtype=torch.float64)
    origins = ["policy", "reference"]
    plain, _ = Dpo(beta=0.5)(log_prob, batch_of_pairs(PAIRS[:1]))
    loss, watch = Xpo(beta=0.5, alpha=0.1)(log_prob, batch_of_pairs(PAIRS[:1], origins=origins))
    torch.testing.assert_close(loss, plain + 0.1 * -3.0)
    assert watch["explored_log_prob"].tolist() == [-3.0]


@pytest.mark.parametrize(
    ("origins", "better_first"), [(["reference", "policy"], True), (["policy", "reference"], False)]
)
def test_its_mean_gradient_moves_mass_from_where_the_reference_goes_to_where_it_does_not(
    origins: list[str], better_first: bool
) -> None:
    """Descent raises the answers that are likelier under the policy than the reference, whichever was judged better."""
    of_first, of_second = (REFERENCE.exp(), POLICY) if better_first else (POLICY, REFERENCE.exp())
    chance = of_first[ALL[:, 0]] * of_second[ALL[:, 1]]
    torch.testing.assert_close(optimism(chance, origins), REFERENCE.exp() - POLICY)


def test_on_the_policys_own_completions_the_mean_gradient_of_the_optimism_vanishes() -> None:
    chance = POLICY[ALL].prod(-1)
    actual = optimism(chance, ["policy", "policy"])
    torch.testing.assert_close(actual, torch.zeros(4, dtype=torch.float64))


def test_one_of_the_pair_is_explored_or_both_by_half() -> None:
    kinds = ["reference", "policy", "policy", "reference", "policy", "policy", "reference", "reference"]
    batch = batch_of_pairs(PAIRS[:4], origins=kinds)
    assert explored_share(batch).tolist() == [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.5, 0.5]]
