"""Tests of CHORD: the mixture of imitation and policy gradient, its share mu over the run, and the weight phi."""

import pytest
import torch
from torch import Tensor

from models.method.problem import Origin
from models.method.token_batch import TokenBatch
from models.parts.objective.chord import Chord
from models.parts.objective.grpo import Grpo
from tests.support.tiny_batches import make_batch

LOG_PROB = torch.tensor([-1.0, -0.2, -2.0, -0.7, -3.0], dtype=torch.float64)
OLD = LOG_PROB + torch.tensor([0.1, -0.3, 0.0, 0.0, 0.0], dtype=torch.float64)
SAMPLED = torch.tensor([True, True, True, False, False])


def batch(progress: float = 0.0, origin: Origin = "demonstration") -> TokenBatch:
    """Return a batch with a sample of three tokens and a demonstration of two tokens."""
    return make_batch(
        advantage=torch.tensor([1.5, 1.5, 1.5, 7.0, 7.0], dtype=torch.float64),
        behaviour=OLD,
        old=OLD,
        reference=LOG_PROB - 0.5,
        completion=torch.tensor([0, 0, 0, 1, 1]),
        origins=["policy", origin],
        progress=progress,
    )


def gradient_of(objective: Grpo, seen: TokenBatch) -> Tensor:
    log_prob = LOG_PROB.clone().requires_grad_()
    loss, _ = objective(log_prob, seen)
    return torch.autograd.grad(loss.sum(), log_prob)[0]


def test_with_mu_zero_it_is_the_clipped_policy_gradient_on_the_samples_and_nothing_else() -> None:
    gradient = gradient_of(Chord(start=0.0, end=0.0, kl=0.2), batch())
    torch.testing.assert_close(gradient, torch.where(SAMPLED, gradient_of(Grpo(kl=0.2), batch()), 0.0))


def test_with_mu_one_it_is_supervised_fine_tuning_on_the_demonstrations_and_nothing_else() -> None:
    loss, _ = Chord(start=1.0, end=1.0, token_wise=False)(LOG_PROB, batch())
    torch.testing.assert_close(loss, torch.where(SAMPLED, 0.0, -LOG_PROB))


def test_phi_weighs_a_token_by_the_variance_of_the_policy_there() -> None:
    gradient = gradient_of(Chord(start=1.0, end=1.0, demonstration_weight=4.0), batch())
    chance = LOG_PROB.exp()
    torch.testing.assert_close(gradient, torch.where(SAMPLED, 0.0, -4.0 * chance * (1 - chance)))


@pytest.mark.parametrize(
    ("progress", "mu"), [(0.0, 0.8), (0.1, 0.4 + 0.4 * 2**-0.5), (0.2, 0.4), (0.3, 0.4 - 0.4 * 2**-0.5), (0.9, 0.0)]
)
def test_mu_falls_by_half_a_cosine_and_stays_where_it_ends(progress: float, mu: float) -> None:
    objective = Chord(start=0.8, end=0.0, until=0.4)
    assert objective._mu(progress) == pytest.approx(mu)
    _, watch = objective(LOG_PROB, batch(progress))
    assert watch["imitation"].tolist() == pytest.approx([mu] * 5)


@pytest.mark.parametrize("progress", [0.0, 0.3, 0.9])
def test_by_default_it_is_chord_phi_with_a_tenth_of_imitation_throughout(progress: float) -> None:
    chance = LOG_PROB.exp()
    loss, _ = Chord(kl=0.0)(LOG_PROB, batch(progress))
    own = Grpo(kl=0.0)(LOG_PROB, batch())[0]
    torch.testing.assert_close(loss, torch.where(SAMPLED, 0.9 * own, -0.1 * chance * (1 - chance) * LOG_PROB))


def test_of_preferences_the_better_answer_is_imitated_and_the_worse_one_left_alone() -> None:
    objective = Chord(start=0.5, end=0.5, kl=0.2, entropy_bonus=0.0)
    shown = objective(LOG_PROB, batch())[0]
    torch.testing.assert_close(objective(LOG_PROB, batch(origin="chosen"))[0], shown)
    torch.testing.assert_close(objective(LOG_PROB, batch(origin="rejected"))[0], torch.where(SAMPLED, shown, 0.0))


def test_in_between_it_is_the_mixture_of_both() -> None:
    half = gradient_of(Chord(start=0.25, end=0.25, kl=0.0), batch())
    alone = gradient_of(Chord(start=0.0, end=0.0, kl=0.0), batch())
    imitated = gradient_of(Chord(start=1.0, end=1.0, kl=0.0), batch())
    torch.testing.assert_close(half, 0.75 * alone + 0.25 * imitated)
