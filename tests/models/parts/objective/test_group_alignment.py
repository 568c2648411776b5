"""Group alignment: its three terms by hand and alone, and groups without an answer of the data."""

import pytest
import torch
from torch import Tensor

from models.method.problem import Origin
from models.method.token_batch import TokenBatch
from models.parts.objective.group_alignment import GroupAlignment
from models.parts.objective.reinforce import Reinforce
from tests.support.tiny_batches import make_batch

LENGTHS = torch.tensor([2, 1, 3, 2, 1])
COMPLETION = torch.repeat_interleave(torch.arange(5), LENGTHS)
ADVANTAGE = torch.tensor([1.0, -0.5, 0.8, -1.0, 1.0], dtype=torch.float64)
TOKENS = torch.tensor([-1.0, -2.0, -0.5, -0.1, -0.4, -1.3, -0.9, -0.6, -1.1], dtype=torch.float64)
ORIGINS: tuple[Origin, ...] = ("policy", "policy", "demonstration", "policy", "demonstration")


def batch(advantage: Tensor = ADVANTAGE, origins: tuple[Origin, ...] = ORIGINS) -> TokenBatch:
    """Return two groups: two samples and an answer of the data, and one sample and an answer of the data."""
    return make_batch(
        advantage=advantage[COMPLETION],
        behaviour=TOKENS,
        old=TOKENS,
        reference=None,
        completion=COMPLETION,
        group=torch.tensor([0, 0, 0, 1, 1]),
        origins=origins,
    )


def gradient_of(objective: GroupAlignment, seen: TokenBatch) -> Tensor:
    """Return the gradient with respect to the mean log-prob of each completion, [completions]."""
    log_prob = seen.sum_by_completion(TOKENS).requires_grad_()
    loss, _ = objective(log_prob, seen)
    return torch.autograd.grad(loss.sum(), log_prob)[0] * LENGTHS


def test_a_group_by_hand() -> None:
    seen = batch()
    loss, watch = GroupAlignment(imitation=2.0, alignment=0.5)(seen.sum_by_completion(TOKENS), seen)
    # second group: l(o) = -0.75, A = -1; l(y) = -1.1, A = 1
    assert [float(watch[name][1]) for name in ("exploration", "imitation", "alignment")] == pytest.approx(
        [0.75, -1.1, -2.0 * 0.35]
    )
    assert float(loss[1]) == pytest.approx(-(0.75 - 2.2 - 0.35))


def test_without_the_answer_of_the_data_it_is_reinforce_with_every_completion_counting_the_same() -> None:
    seen = batch()
    log_prob = TOKENS.clone().requires_grad_()
    losses, _ = Reinforce()(log_prob, seen)
    (by_token,) = torch.autograd.grad((losses / LENGTHS[COMPLETION]).sum(), log_prob)
    samples = torch.tensor([0.5, 0.5, 0.0, 1.0, 0.0], dtype=torch.float64)
    gradient = gradient_of(GroupAlignment(imitation=0.0, alignment=0.0), seen)
    torch.testing.assert_close(gradient, seen.sum_by_completion(by_token) * samples)


def test_where_no_sample_has_an_advantage_it_is_imitation_weighed_by_that_of_the_answer() -> None:
    advantage = ADVANTAGE * torch.tensor([0.0, 0.0, 1.0, 0.0, 1.0], dtype=torch.float64)
    gradient = gradient_of(GroupAlignment(imitation=1.0, alignment=0.0), batch(advantage))
    torch.testing.assert_close(gradient, -advantage)


def test_alignment_pushes_samples_and_answer_apart_by_what_they_differ_in_worth() -> None:
    gradient = gradient_of(GroupAlignment(imitation=0.0, alignment=1.0), batch()) - gradient_of(
        GroupAlignment(imitation=0.0, alignment=0.0), batch()
    )
    # A_i - A_y is 0.2 and -1.3 in the first group, divided by its two samples, and -2 in the second, with one sample
    # the gradients of a group sum to zero, so the answer has minus the sum of its samples
    wanted = torch.tensor([-0.1, 0.65, -0.55, 2.0, -2.0], dtype=torch.float64)
    torch.testing.assert_close(gradient, wanted)


def test_samples_as_good_as_the_answer_are_not_aligned() -> None:
    equal = torch.tensor([0.7, 0.7, 0.7, -0.2, -0.2], dtype=torch.float64)
    with_it, without = GroupAlignment(alignment=3.0), GroupAlignment(alignment=0.0)
    torch.testing.assert_close(gradient_of(with_it, batch(equal)), gradient_of(without, batch(equal)))


def test_the_worse_answer_of_a_preference_is_neither_a_sample_nor_imitated() -> None:
    origins: tuple[Origin, ...] = ("policy", "policy", "chosen", "policy", "rejected")
    gradient = gradient_of(GroupAlignment(imitation=5.0, alignment=5.0), batch(origins=origins))
    shown = gradient_of(GroupAlignment(imitation=5.0, alignment=5.0), batch())
    torch.testing.assert_close(gradient[:3], shown[:3])
    torch.testing.assert_close(gradient[3:], torch.tensor([1.0, 0.0], dtype=torch.float64))  # only exploration is left


def test_a_group_without_an_answer_of_the_data_only_explores() -> None:
    seen = batch(origins=("policy",) * 5)
    gradient = gradient_of(GroupAlignment(imitation=5.0, alignment=5.0), seen)
    torch.testing.assert_close(gradient, -ADVANTAGE / torch.tensor([3.0, 3.0, 3.0, 2.0, 2.0], dtype=torch.float64))
