"""The regression to advantages: values by hand, its gradient, and its optimum on a policy that can be enumerated."""

from collections.abc import Sequence

import torch
from torch import Tensor

from models.method.token_batch import TokenBatch
from models.parts.objective.advantage_regression import AdvantageRegression, stretches
from tests.support.tiny_batches import make_batch, numbers


def batch(advantage: Tensor, reference: Tensor, completion: Sequence[int]) -> TokenBatch:
    return make_batch(advantage, reference, reference, reference, torch.tensor(completion))


def test_by_hand() -> None:
    # beta is 1/2. Step one has two tokens with log-ratios 1 and 3: 1/2 * 4 - 1 = 1, a loss of 1/2, 1/4 per token.
    # Step two has log-ratio -2: -1 - 2 = -3, a loss of 4.5. The other completion has 1 - 2 = -1, a loss of 0.5.
    log_prob = numbers(-1, -1, -4, -1)
    reference = numbers(-2, -4, -2, -3)
    actual, watch = AdvantageRegression(beta=0.5)(log_prob, batch(numbers(1, 1, 2, 2), reference, [0, 0, 0, 1]))
    torch.testing.assert_close(actual, numbers(0.25, 0.25, 4.5, 0.5))
    torch.testing.assert_close(watch["step_error"], numbers(1, 1, 3, 1))


def test_a_step_is_a_stretch_of_one_advantage_in_one_completion() -> None:
    actual = stretches(numbers(1, 1, 2, 2, 1, 1, 1), torch.tensor([0, 0, 0, 0, 0, 1, 1]))
    assert actual.tolist() == [0, 0, 1, 1, 2, 3, 3]


def test_where_the_policy_is_its_reference_the_gradient_is_beta_times_that_of_the_policy_gradient() -> None:
    log_prob = numbers(-1, -2, -0.5, -3).requires_grad_()
    advantage = numbers(0.7, 0.7, -0.2, 1.5)
    losses, _ = AdvantageRegression(beta=0.3)(log_prob, batch(advantage, log_prob.detach(), [0, 0, 0, 1]))
    losses.sum().backward()
    torch.testing.assert_close(log_prob.grad, -0.3 * advantage)


def test_without_advantage_the_reference_is_the_optimum() -> None:
    log_prob = numbers(-1, -2, -0.5).requires_grad_()
    losses, _ = AdvantageRegression()(log_prob, batch(numbers(0, 0, 0), log_prob.detach(), [0, 0, 1]))
    losses.sum().backward()
    assert log_prob.grad is not None
    assert not losses.any() and not log_prob.grad.any()


def test_a_policy_that_can_be_enumerated_comes_to_the_exponentially_tilted_reference() -> None:
    """The four actions have one token each. The advantages are chosen so that ref * exp(A / beta) sums to one."""
    reference, wanted, beta = numbers(0.4, 0.3, 0.2, 0.1), numbers(0.1, 0.2, 0.3, 0.4), 0.5
    advantage = beta * (wanted / reference).log()
    logits = reference.log().requires_grad_()
    for _ in range(300):
        log_prob = torch.log_softmax(logits, dim=0)
        losses, _ = AdvantageRegression(beta=beta)(log_prob, batch(advantage, reference.log(), [0, 1, 2, 3]))
        (gradient,) = torch.autograd.grad((reference * losses).sum(), logits)
        with torch.no_grad():
            logits -= 10 * gradient
    torch.testing.assert_close(logits.softmax(0), wanted, rtol=0, atol=1e-6)


def test_the_loss_of_a_completion_does_not_depend_on_the_others_of_its_row() -> None:
    log_prob, reference, advantage = numbers(-1, -2, -3, -4), numbers(-2, -2, -2, -2), numbers(1, 1, 1, 1)
    together, _ = AdvantageRegression()(log_prob, batch(advantage, reference, [0, 0, 1, 1]))
    alone, _ = AdvantageRegression()(log_prob[2:], batch(advantage[2:], reference[2:], [0, 0]))
    torch.testing.assert_close(together[2:], alone)
