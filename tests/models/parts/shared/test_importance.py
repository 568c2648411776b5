"""The correction for the policy that sampled: weights of tokens and completions, bounds, and exact gradients."""

import math
from itertools import product
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.parts.objective.cispo import Cispo
from models.parts.objective.gmpo import Gmpo
from models.parts.objective.grpo import Grpo
from models.parts.objective.gspo import Gspo, GspoToken
from models.parts.objective.reinforce import Reinforce
from models.parts.objective.sapo import Sapo
from models.parts.shared.importance import ImportanceSettings, importance_weight
from models.recipes.load import load_recipe
from tests.support.tiny_batches import gradient_of, make_batch, numbers

OLD = numbers(-1.0, -1.0, -2.0, -2.0, -2.0)
RATIOS = numbers(3.0, 0.5, 1.2, 0.25, 1.0)
SEEN = make_batch(
    numbers(1.0, 1.0, -1.0, -1.0, -1.0), OLD - RATIOS.log(), OLD, completion=torch.tensor([0, 0, 1, 1, 1])
)


def weights(**settings: Any) -> Tensor:
    return importance_weight(SEEN, Reinforce(**settings))[0]


def test_by_token_truncated_is_the_ratio_up_to_the_ceiling() -> None:
    torch.testing.assert_close(weights(), numbers(2.0, 0.5, 1.2, 0.25, 1.0))
    torch.testing.assert_close(weights(importance_ceiling=None), RATIOS)
    torch.testing.assert_close(weights(importance_floor=0.5), numbers(2.0, 0.5, 1.2, 0.5, 1.0))


def test_by_token_masked_drops_what_is_out_of_bounds_and_leaves_the_others_their_weight() -> None:
    torch.testing.assert_close(weights(importance_rule="masked"), numbers(0.0, 0.5, 1.2, 0.25, 1.0))
    icepop: dict[str, Any] = {"importance_rule": "masked", "importance_floor": 0.5, "importance_ceiling": 2.0}
    torch.testing.assert_close(weights(**icepop), numbers(0.0, 0.5, 1.2, 0.0, 1.0))
    _, watch = importance_weight(SEEN, Reinforce(**icepop))
    assert watch["importance_masked_share"].tolist() == [1.0, 0.0, 0.0, 1.0, 0.0]


def test_of_a_completion_is_the_product_at_each_of_its_tokens() -> None:
    torch.testing.assert_close(weights(importance_level="completion"), numbers(1.5, 1.5, 0.3, 0.3, 0.3))
    cut = weights(importance_level="completion", importance_ceiling=1.4)
    torch.testing.assert_close(cut, numbers(1.4, 1.4, 0.3, 0.3, 0.3))
    masked = weights(importance_level="completion", importance_rule="masked", importance_ceiling=1.4)
    torch.testing.assert_close(masked, numbers(0.0, 0.0, 0.3, 0.3, 0.3))


def test_geometric_is_the_root_of_the_product() -> None:
    expected = numbers(math.sqrt(1.5), math.sqrt(1.5), *[0.3 ** (1 / 3)] * 3)
    torch.testing.assert_close(weights(importance_level="geometric"), expected)


@pytest.mark.parametrize("level", ["token", "completion", "geometric"])
@pytest.mark.parametrize("rule", ["truncated", "masked"])
def test_where_engine_and_learner_agree_nothing_is_corrected(level: str, rule: str) -> None:
    seen = make_batch(SEEN.advantage, None, OLD, completion=SEEN.completion)
    settings: dict[str, Any] = {
        "importance_level": level,
        "importance_rule": rule,
        "importance_floor": 0.9,
        "importance_ceiling": 1.1,
    }
    torch.testing.assert_close(importance_weight(seen, Grpo(**settings))[0], torch.ones(5, dtype=torch.float64))


@pytest.mark.parametrize("kind", [Grpo, Reinforce, Cispo, Sapo, Gmpo, GspoToken])
@pytest.mark.parametrize("level", ["token", "completion", "geometric"])
def test_every_policy_gradient_is_corrected_by_the_same_weight(kind: Any, level: str) -> None:
    """The gradient of the first step is the weight times the advantage times the gradient of the log-prob."""
    settings: dict[str, Any] = {"importance_level": level, "importance_rule": "masked", "importance_ceiling": 2.5}
    gradient = gradient_of(kind(kl=0.0, **settings), OLD, SEEN)
    expected = -weights(**settings) * SEEN.advantage
    if kind is Gmpo:  # each token carries the one loss of its whole completion
        expected = SEEN.mean_by_completion(expected)[SEEN.completion]
    torch.testing.assert_close(gradient, expected)


def test_an_objective_of_completions_takes_the_mean_of_its_tokens_weights() -> None:
    losses, watch = Gspo()(SEEN.sum_by_completion(OLD), SEEN)
    torch.testing.assert_close(losses, -numbers(1.25, -2.45 / 3))
    torch.testing.assert_close(watch["importance_weight"], numbers(1.25, 2.45 / 3))


STARTS = numbers(0.4, -0.3, 0.1)
NEXT = torch.tensor([[0.2, 0.9], [-0.5, 0.3], [1.0, -1.0]], dtype=torch.float64)
WORTH = torch.tensor([[1.0, 0.0], [0.2, -1.0], [0.5, 2.0]], dtype=torch.float64)


def expected_gradient(
    level: Literal["token", "completion", "geometric"],
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the expected gradient of Reinforce, and the exact one.

    The expectation is over all completions of two tokens, drawn by an engine whose policy differs.
    """
    logits = [STARTS.clone().requires_grad_(), NEXT.clone().requires_grad_()]
    first, second = logits[0].log_softmax(0), logits[1].log_softmax(-1)
    exact = torch.autograd.grad(((first[:, None] + second).exp() * WORTH).sum(), logits, retain_graph=True)
    by, then = (0.3 * STARTS).log_softmax(0), (-0.5 * NEXT).log_softmax(-1)
    objective = Reinforce(importance_level=level, importance_ceiling=None)
    total = torch.zeros((), dtype=torch.float64)
    for left, two in product(range(3), range(2)):
        log_prob = torch.stack([first[left], second[left, two]])
        behaviour = torch.stack([by[left], then[left, two]])
        worth = torch.full((2,), float(WORTH[left, two]), dtype=torch.float64)
        seen = make_batch(worth, behaviour, log_prob.detach(), completion=torch.tensor([0, 0]))
        total = total - behaviour.sum().exp() * objective(log_prob, seen)[0].sum()
    return torch.autograd.grad(total, logits), exact


def test_only_the_completions_own_weight_makes_the_expected_gradient_exact() -> None:
    gradient, exact = expected_gradient("completion")
    torch.testing.assert_close(gradient, exact)
    for level in ("token", "geometric"):
        biased, exact = expected_gradient(level)
        assert (biased[1] - exact[1]).norm() > 0.02 * exact[1].norm()


def test_bounds_that_cross_are_refused_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("objective: {name: grpo, importance_floor: 3.0}")
    with pytest.raises(UserError, match=r"objective.*importance_floor is 3.0, above importance_ceiling, 2.0") as caught:
        load_recipe(file)
    assert "\n" not in str(caught.value)
    assert ImportanceSettings.importance_ceiling == 2.0
