"""Nash-MD's policy gradient: by hand, and its fixed points in enumerable preference games."""

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from models.method.scored import Scored
from models.method.token_batch import TokenBatch
from models.parts.advantage.reward import FixedBaseline
from models.parts.objective.nash_md import NashMd
from models.parts.rewards.shaping.win_rate import win_rates
from tests.support.enumerable_games import PREFERENCE, REFERENCE, held_equilibrium, mixed
from tests.support.tiny_batches import make_batch
from tests.support.tiny_resources import make_resources

STRENGTH = 0.2
PLAYS = torch.tensor(list(product(range(3), repeat=2)))
"""All pairs of an own play and an opponent's play, [9, 2]."""
UNIFORM = torch.zeros(3, dtype=torch.float64).log_softmax(0)
FAIR = 0.5 + torch.tensor([[0.0, -0.5, 0.5], [0.5, 0.0, -0.5], [-0.5, 0.5, 0.0]], dtype=torch.float64)
"""Win probabilities in rock, paper, scissors, [3, 3]."""


def batch_of(advantage: Tensor, reference: Tensor, completion: Tensor | None = None) -> TokenBatch:
    nothing = torch.zeros_like(reference)
    completion = torch.arange(len(reference)) if completion is None else completion
    return make_batch(advantage, nothing, nothing, reference, completion)


def mean_gradient(
    logits: Tensor, share: float, reference: Tensor = REFERENCE, preference: Tensor = PREFERENCE, kl: float = STRENGTH
) -> Tensor:
    """Return the exact gradient of the expected loss with respect to the logits, [3]; the sampler is held constant.

    Rewards and advantages are computed by the parts that the recipe names.
    """
    logits = logits.detach().clone().requires_grad_()
    adversaries = ~torch.eye(2, dtype=torch.bool)
    rewards = torch.stack([win_rates(preference[play][:, play], adversaries)[0] for play in PLAYS])
    advantage = FixedBaseline(baseline=0.5).of_completions(make_resources(), Scored([], rewards, {}, {}))
    own, opponent = PLAYS[:, 0], PLAYS[:, 1]
    chance = logits.detach().softmax(0)[own] * mixed(logits.detach(), share, reference).exp()[opponent]
    losses, _ = NashMd(kl=kl)(logits.log_softmax(0)[own], batch_of(advantage, reference[own]))
    return torch.autograd.grad((chance * losses).sum(), logits)[0]


def descended(logits: Tensor, steps: int, size: float = 1.0, **game: Any) -> Tensor:
    for _ in range(steps):
        logits = logits - size * mean_gradient(logits, **game)
    return logits.softmax(0)


def test_two_completions_of_several_tokens_by_hand() -> None:
    reference = torch.tensor([-1.0, -1.0, -4.0], dtype=torch.float64)
    advantage = torch.tensor([0.5, 0.5, -0.25], dtype=torch.float64)
    log_prob = torch.tensor([-3.0, -2.0], dtype=torch.float64, requires_grad=True)
    loss, watch = NashMd(kl=0.1)(log_prob, batch_of(advantage, reference, torch.tensor([0, 0, 1])))
    (gradient,) = torch.autograd.grad(loss.sum(), log_prob)
    assert watch["kl"].tolist() == [-1.0, 2.0]
    assert watch["regularised_value"].tolist() == pytest.approx([0.5 + 0.1, -0.25 - 0.2])
    assert gradient.tolist() == pytest.approx([-0.6, 0.45]) and loss.tolist() == pytest.approx([1.8, -0.9])


def test_where_nobody_is_preferred_the_expected_gradient_is_that_of_the_kl_from_policy_to_reference() -> None:
    logits = torch.tensor([0.7, -0.5, 0.2], dtype=torch.float64, requires_grad=True)
    log_policy = logits.log_softmax(0)
    (exact,) = torch.autograd.grad(STRENGTH * (log_policy.exp() * (log_policy - REFERENCE)).sum(), logits)
    gradient = mean_gradient(logits, 0.3, preference=torch.full((3, 3), 0.5, dtype=torch.float64))
    torch.testing.assert_close(gradient, exact)


@pytest.mark.parametrize("share", [0.0, 0.125, 0.5])
def test_the_last_policy_of_rock_paper_scissors_is_uniform(share: float) -> None:
    start = torch.tensor([2.0, 0.0, -1.0], dtype=torch.float64)
    last = descended(start, 600, size=2.0, share=share, reference=UNIFORM, preference=FAIR, kl=0.1)
    torch.testing.assert_close(last, UNIFORM.exp(), rtol=0, atol=1e-4)


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("share", [0.0, 0.125, 0.5])
def test_the_last_policy_is_the_equilibrium_held_by_its_reference_against_the_mixture(share: float) -> None:
    last = descended(torch.tensor([-1.0, 0.5, 1.0], dtype=torch.float64), 500, size=2.0, share=share)
    expected = held_equilibrium(STRENGTH, share).exp()
    torch.testing.assert_close(last, expected, rtol=0, atol=1e-5)


def test_the_mixtures_share_is_seen_in_where_the_policy_ends() -> None:
    ends = [held_equilibrium(STRENGTH, share).exp() for share in (0.0, 0.5)]
    assert float((ends[0] - ends[1]).abs().max()) > 0.01
