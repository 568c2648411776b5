"""The implicit process reward model: its cross-entropy by hand, and the sum of its token rewards."""

import math
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.method.token_batch import TokenBatch
from models.parts.objective.outcome_log_ratio import OutcomeLogRatio, verdict_loss
from models.parts.shared.implied_rewards import implied_of_completions, implied_of_tokens
from tests.support.tiny_batches import make_batch, numbers


def batch_of(
    reference: tuple[float, float], reward: tuple[float, float], components: Mapping[str, Tensor] | None = None
) -> TokenBatch:
    """Return completions of two tokens each; `reference` holds log-probs of whole completions."""
    tokens = torch.repeat_interleave(numbers(*reference) / 2, 2)
    completion = torch.repeat_interleave(torch.arange(len(reference)), 2)
    return make_batch(tokens, tokens, tokens, tokens, completion, reward=numbers(*reward), components=components or {})


def test_a_right_and_a_wrong_completion_by_hand() -> None:
    log_prob = numbers(-3.0, -3.0)
    loss, watch = OutcomeLogRatio(beta=0.5)(log_prob, batch_of((-5.0, -5.0), (1.0, 0.0)))
    # r = 0.5 * (-3 + 5) = 1 for both
    assert loss.tolist() == pytest.approx([math.log(1 + math.exp(-1.0)), math.log(1 + math.exp(1.0))])
    assert watch["outcome_accuracy"].tolist() == [1.0, 0.0] and watch["outcome_value"].tolist() == [1.0, 1.0]


def test_a_policy_that_is_its_reference_has_a_loss_of_log_2_and_moves_by_half_beta() -> None:
    log_prob = numbers(-3.0, -7.0).requires_grad_()
    loss, _ = OutcomeLogRatio(beta=0.1)(log_prob, batch_of((-3.0, -7.0), (1.0, 0.0)))
    loss.sum().backward()
    assert loss.tolist() == pytest.approx([math.log(2)] * 2)
    torch.testing.assert_close(log_prob.grad, numbers(-0.05, 0.05))


def test_it_is_the_cross_entropy_of_pytorch() -> None:
    value, right = torch.linspace(-5, 5, 11, dtype=torch.float64), torch.arange(11) % 2 == 0
    expected = torch.nn.functional.binary_cross_entropy_with_logits(value, right.double(), reduction="none")
    torch.testing.assert_close(verdict_loss(value, right), expected)


def test_it_is_smallest_where_the_log_odds_are_those_of_being_right() -> None:
    """A completion that is right in 3 cases of 4 has log-odds of log 3; the gradient is zero there."""
    value = numbers(math.log(3.0)).requires_grad_()
    loss = 0.75 * verdict_loss(value, torch.tensor([True]))
    loss = loss + 0.25 * verdict_loss(value, torch.tensor([False]))
    (gradient,) = torch.autograd.grad(loss.sum(), value)
    assert float(gradient.abs()) < 1e-12


def test_the_rewards_of_the_tokens_add_up_to_what_the_outcome_is_predicted_from() -> None:
    """The implicit process reward distributes the value that this loss fits over the tokens of the completion."""
    batch = batch_of((-5.0, -4.0), (1.0, 0.0))
    tokens = numbers(-1.0, -2.0, -0.5, -2.5)
    assert batch.reference is not None
    by_token = batch.sum_by_completion(implied_of_tokens(tokens, batch.reference, beta=0.3))
    whole = batch.sum_by_completion(tokens)
    torch.testing.assert_close(by_token, implied_of_completions(whole, batch, beta=0.3))
    torch.testing.assert_close(by_token, OutcomeLogRatio(beta=0.3)(whole, batch)[1]["outcome_value"])


def test_prefix_sums_are_the_soft_values_of_the_reward_that_the_policy_implies() -> None:
    """For all answers of two binary tokens, q_t = beta * log E_ref[exp(r / beta) | the first t tokens]."""
    reference = numbers(0.7, 0.3), numbers(0.2, 0.8), numbers(0.6, 0.4)  # first token; second after 0; after 1
    policy = numbers(0.4, 0.6), numbers(0.9, 0.1), numbers(0.5, 0.5)
    beta = 0.5
    for first in (0, 1):
        head = (policy[0][first] / reference[0][first]).log()
        tails = (policy[1 + first] / reference[1 + first]).log()
        reward = beta * (head + tails)
        soft = beta * (reference[1 + first] * (reward / beta).exp()).sum().log()
        for second in (0, 1):
            wrote = torch.stack([policy[0][first], policy[1 + first][second]]).log()
            held = torch.stack([reference[0][first], reference[1 + first][second]]).log()
            values = implied_of_tokens(wrote, held, beta).cumsum(0)
            torch.testing.assert_close(values, torch.stack([soft, reward[second]]))


def test_the_outcome_can_be_one_component_and_an_unknown_one_is_named() -> None:
    components = {"exact_answer": numbers(0.0, 1.0)}
    batch = batch_of((-3.0, -3.0), (1.0, 1.0), components)
    _, watch = OutcomeLogRatio(by="exact_answer")(numbers(-2.0, -2.0), batch)
    assert watch["outcome_accuracy"].tolist() == [0.0, 1.0]
    with pytest.raises(UserError, match="no reward is called judge; there are exact_answer"):
        OutcomeLogRatio(by="judge")(numbers(-2.0, -2.0), batch)


def test_what_is_watched_is_one_value_a_completion_without_gradient() -> None:
    log_prob = numbers(-2.0, -3.0).requires_grad_()
    _, watch = OutcomeLogRatio()(log_prob, batch_of((-2.0, -3.0), (1.0, 0.0)))
    assert all(value.shape == (2,) and not value.requires_grad for value in watch.values())
