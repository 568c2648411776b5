"""Tests of A-LoL: the clipped weight by hand, the exact policy gradient in expectation, and finite values."""

import math
from collections.abc import Sequence

import torch

from models.method.token_batch import TokenBatch
from models.parts.objective.a_lol import ALol
from tests.support.tiny_batches import gradient_of, make_batch, numbers


def batch_of(advantage: Sequence[float], reference: Sequence[float]) -> TokenBatch:
    """Return a batch of completions of two tokens. `reference` contains log-probs of whole completions."""
    tokens = torch.repeat_interleave(numbers(*reference) / 2, 2)
    return make_batch(
        advantage=torch.repeat_interleave(numbers(*advantage), 2),
        behaviour=tokens,
        old=tokens,
        reference=tokens,
        completion=torch.repeat_interleave(torch.arange(len(advantage)), 2),
    )


def test_a_completion_by_hand() -> None:
    """The ratio 1.25 is within the clip. The ratios 4 and 0.1 are clipped to its ends, 1.5 and 0.25."""
    log_prob = numbers(-2.0, -3.0, -5.0)
    reference = (log_prob - numbers(1.25, 4.0, 0.1).log()).tolist()
    loss, watch = ALol(clip_low=0.75, clip_high=0.5)(log_prob, batch_of((2.0, 1.0, 0.5), reference))
    torch.testing.assert_close(loss, numbers(2.0 * 1.25 * 2.0, 1.0 * 1.5 * 3.0, 0.5 * 0.25 * 5.0))
    torch.testing.assert_close(watch["sequence_log_ratio"], numbers(1.25, 4.0, 0.1).log())
    torch.testing.assert_close(watch["sequence_weight"], numbers(1.25, 1.5, 0.25))
    assert watch["clipped_share"].tolist() == [0.0, 1.0, 1.0]


def test_where_the_policy_is_its_reference_it_is_likelihood_weighted_by_advantage() -> None:
    log_prob = numbers(-2.0, -30.0)
    batch = batch_of((1.5, 0.25), log_prob.tolist())
    torch.testing.assert_close(ALol()(log_prob, batch)[0], -numbers(1.5, 0.25) * log_prob)
    torch.testing.assert_close(gradient_of(ALol(), log_prob, batch), -numbers(1.5, 0.25))


def test_without_importance_weights_the_reference_does_not_matter() -> None:
    log_prob, plain = numbers(-2.0, -3.0), ALol(importance="none")
    gradient = gradient_of(plain, log_prob, batch_of((1.0, 2.0), (-9.0, -0.5)))
    torch.testing.assert_close(gradient, numbers(-1.0, -2.0))


def test_a_clipped_answer_is_still_trained_on() -> None:
    far = numbers(-1.0)
    gradient = gradient_of(ALol(clip_high=0.9), far, batch_of((1.0,), (-1.0 - math.log(50),)))
    torch.testing.assert_close(gradient, numbers(-1.9))


def test_the_expected_update_over_the_references_answers_is_the_exact_policy_gradient() -> None:
    """All four answers of the policy are enumerated. The clip is so wide that it has no effect."""
    logits, reference = numbers(0.3, -0.2, 0.9, 0.0).requires_grad_(), numbers(0.4, 0.3, 0.2, 0.1)
    rewards = numbers(1.0, 0.0, -2.0, 0.5)
    (exact,) = torch.autograd.grad((logits.softmax(0) * rewards).sum(), logits)
    batch = batch_of(rewards.tolist(), reference.log().tolist())
    losses, _ = ALol(clip_low=1.0, clip_high=100.0)(logits.log_softmax(0), batch)
    (gradient,) = torch.autograd.grad((reference * losses).sum(), logits)
    torch.testing.assert_close(-gradient, exact)


def test_far_from_the_reference_loss_gradient_and_all_that_is_watched_are_finite() -> None:
    """The ratio of a whole answer is outside the range of floats, but the clipped weight is not."""
    log_prob = torch.tensor([-2.0, -300.0])
    seen = batch_of((1.0, 1.0), (-300.0, -2.0))
    loss, watch = ALol()(log_prob, seen)
    assert loss.isfinite().all() and gradient_of(ALol(), log_prob, seen).isfinite().all()
    assert all(value.isfinite().all() for value in watch.values())


def test_what_is_watched_is_one_value_a_completion_without_gradient() -> None:
    log_prob = numbers(-2.0, -3.0).requires_grad_()
    _, watch = ALol()(log_prob, batch_of((1.0, 1.0), (-2.0, -3.0)))
    assert all(value.shape == (2,) and not value.requires_grad for value in watch.values())
