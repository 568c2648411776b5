"""The KL term of the loss: the gradients of its estimators, and refused settings."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.parts.objective.cispo import Cispo
from models.parts.objective.gmpo import Gmpo
from models.parts.objective.grpo import Grpo
from models.parts.objective.gspo import GspoToken
from models.parts.objective.reinforce import Reinforce
from models.parts.objective.sapo import Sapo
from models.parts.objective.weighted_likelihood import WeightedLikelihood
from models.parts.shared.kl_term import k2, k3
from models.recipes.load import load_recipe
from tests.support.tiny_batches import gradient_of, make_batch, numbers

REFERENCE = numbers(0.1, 0.2, 0.3, 0.4)


def expected(estimator: Callable[[Tensor, Tensor], Tensor]) -> list[Tensor]:
    """Return the gradient of an estimator, and those of the KL in both directions.

    The estimator's gradient is its mean over all samples of a softmax policy, taken through their log-probs.
    """
    logits = numbers(0.3, -0.2, 0.9, 0.0).requires_grad_()
    log_prob = logits.log_softmax(0)
    chance, log_reference = log_prob.exp(), REFERENCE.log()
    mean = (chance.detach() * estimator(log_prob, log_reference)).sum()
    to_reference = (chance * (log_prob - log_reference)).sum()
    from_reference = (REFERENCE * (log_reference - log_prob)).sum()
    return [torch.autograd.grad(value, logits, retain_graph=True)[0] for value in (mean, to_reference, from_reference)]


def test_the_gradient_of_k2_is_that_of_the_kl_of_the_policy_to_the_reference() -> None:
    actual, to_reference, from_reference = expected(k2)
    torch.testing.assert_close(actual, to_reference)
    assert (to_reference - from_reference).norm() > 0.05 * to_reference.norm()


def test_the_gradient_of_k3_is_that_of_the_kl_the_other_way_round() -> None:
    actual, _, from_reference = expected(k3)
    torch.testing.assert_close(actual, from_reference)


def test_k1_as_a_loss_has_no_gradient_in_expectation() -> None:
    actual, _, _ = expected(lambda log_prob, reference: log_prob - reference)
    assert actual.abs().max() < 1e-15


def test_k2_by_hand() -> None:
    torch.testing.assert_close(k2(numbers(-1.0, -1.0), numbers(-3.0, -1.5)), numbers(2.0, 0.125))


@pytest.mark.parametrize("kind", [Grpo, Reinforce, Cispo, Sapo, Gmpo, GspoToken, WeightedLikelihood])
@pytest.mark.parametrize(("estimator", "slope"), [("k2", [2.0, -0.5]), ("k3", [1 - 2.718281828459045**-2, None])])
def test_every_objective_with_a_kl_takes_either_estimator(kind: Any, estimator: str, slope: list[Any]) -> None:
    old = numbers(-1.0, -1.0)
    reference = numbers(-3.0, -0.5)
    seen = make_batch(numbers(0.0, 0.0), None, old, reference)
    gradient = gradient_of(kind(kl=0.5, kl_estimator=estimator), old, seen)
    second = slope[1] if slope[1] is not None else 1 - 2.718281828459045**0.5
    torch.testing.assert_close(gradient, 0.5 * numbers(slope[0], second))
    _, watch = kind(kl=0.5, kl_estimator=estimator)(old, seen)
    torch.testing.assert_close(watch["kl"], {"k2": k2, "k3": k3}[estimator](old, reference))


def test_k1_in_the_loss_is_refused_in_one_line_that_says_what_to_take(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("objective: {name: grpo, kl_estimator: k1}")
    with pytest.raises(UserError, match=r"objective\.kl_estimator: .*no gradient in expectation; take k2") as caught:
        load_recipe(file)
    assert "\n" not in str(caught.value)
