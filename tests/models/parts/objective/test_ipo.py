"""IPO's loss and its online forms: by hand, and fixed points at the equilibria of the regularised preference game."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from models.parts.objective.ipo import Ipo
from tests.support.enumerable_games import PREFERENCE, REFERENCE, held_equilibrium, mean_gradient_of_pairs, mixed
from tests.support.tiny_batches import make_batch

STRENGTH = 0.2


def by_hand(log_prob: Sequence[float], reference: Sequence[float], beta: float) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss and the metrics of one pair of one-token completions; the better one has index 1."""
    nothing = torch.zeros(2, dtype=torch.float64)
    batch = make_batch(
        advantage=nothing,
        behaviour=nothing,
        old=nothing,
        reference=torch.tensor(reference, dtype=torch.float64),
        pairs=torch.tensor([[1, 0]]),
    )
    return Ipo(beta=beta)(torch.tensor([log_prob], dtype=torch.float64), batch)


def test_a_pair_by_hand() -> None:
    loss, watch = by_hand([-1.0, -3.0], [-2.5, -2.0], beta=0.25)
    # the better completion has index 1: h = (-1 + 2) - (-3 + 2.5) = 1.5; the target is 1 / 0.5 = 2
    assert loss.tolist() == [0.25]
    assert watch["pair_margin"].tolist() == [1.5] and watch["pair_accuracy"].tolist() == [1.0]
    assert watch["ratio_better"].tolist() == [1.0] and watch["ratio_worse"].tolist() == [-0.5]


def test_a_margin_beyond_the_target_is_pulled_back() -> None:
    log_prob = torch.tensor([[-1.0, -9.0]], dtype=torch.float64, requires_grad=True)
    nothing = torch.zeros(2, dtype=torch.float64)
    batch = make_batch(nothing, nothing, nothing, nothing - 2.0, torch.arange(2), torch.tensor([[0, 1]]))
    loss, _ = Ipo(beta=0.1)(log_prob, batch)  # h = 8, target 5
    loss.sum().backward()
    assert log_prob.grad is not None
    assert log_prob.grad.tolist() == [[pytest.approx(6.0), pytest.approx(-6.0)]]


def test_what_shifts_both_answers_of_a_pair_changes_nothing() -> None:
    assert by_hand([-1.0, -3.0], [-2.5, -2.0], 0.1)[0] == by_hand([-2.0, -4.0], [4.5, 5.0], 0.1)[0]


def test_on_the_policys_own_pairs_the_gradient_vanishes_at_the_held_nash_equilibrium_and_not_beside_it() -> None:
    nash = held_equilibrium(STRENGTH)
    gradient = mean_gradient_of_pairs(Ipo(beta=STRENGTH), nash, nash)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-12)
    beside = nash + torch.tensor([0.1, 0.0, 0.0], dtype=torch.float64)
    assert float(mean_gradient_of_pairs(Ipo(beta=STRENGTH), beside, beside).abs().max()) > 0.01
    assert float((PREFERENCE @ REFERENCE.exp() - 0.5).abs().max()) > 0.05  # not the reference


def test_on_the_policys_own_pairs_the_gradient_is_that_of_the_regularised_game_against_itself() -> None:
    logits = torch.tensor([0.7, -0.5, 0.2], dtype=torch.float64, requires_grad=True)
    log_policy = logits.log_softmax(0)
    wins = PREFERENCE @ log_policy.detach().exp()
    value = log_policy.exp() @ (wins - STRENGTH * (log_policy - REFERENCE))
    (ascent,) = torch.autograd.grad(value, logits)
    descent = mean_gradient_of_pairs(Ipo(beta=STRENGTH), logits, log_policy)
    torch.testing.assert_close(descent, -2 / STRENGTH * ascent)


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_descent_on_pairs_of_the_mixture_ends_at_the_fixed_point_of_nash_md(share: float) -> None:
    logits = torch.tensor([-1.0, 0.5, 1.0], dtype=torch.float64)
    for _ in range(1500):
        logits = logits - 0.1 * mean_gradient_of_pairs(Ipo(beta=STRENGTH), logits, mixed(logits, share))
    expected = held_equilibrium(STRENGTH, share).exp()
    torch.testing.assert_close(logits.softmax(0), expected, rtol=0, atol=1e-6)


def test_averaged_over_tokens_the_margin_is_that_of_the_mean_log_ratios() -> None:
    """The answers have three and two tokens; the expected margin follows from the definition."""
    log_prob = -torch.rand(5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    reference = -torch.rand(5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    nothing, of = torch.zeros(5, dtype=torch.float64), torch.tensor([0, 0, 0, 1, 1])
    batch = make_batch(nothing, nothing, nothing, reference, of, torch.tensor([[1, 0]]))
    sums = batch.by_pair(log_prob)
    apart = log_prob - reference
    margin = apart[3:].mean() - apart[:3].mean()
    loss, watch = Ipo(beta=0.5, average="tokens")(sums, batch)
    torch.testing.assert_close(loss, (margin - 1.0)[None] ** 2)
    torch.testing.assert_close(watch["pair_margin"], margin[None])
    whole, _ = Ipo(beta=0.5)(sums, batch)
    torch.testing.assert_close(whole, (apart[3:].sum() - apart[:3].sum() - 1.0)[None] ** 2)
