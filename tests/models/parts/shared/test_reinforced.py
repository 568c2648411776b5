"""A judge that learns from the worth of its answers: the loss, the passes, and questions that teach nothing."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models.learner.optimiser import NotFinite, OptimiserSettings
from models.method.judge import MISSING, Answer
from models.method.learner import Companion
from models.parts.shared.reinforced import JudgedQuestion, reinforce
from tests.support.tiny_models import COMPLETIONS, PROMPTS, SEQUENCES, plain_log_probs, tiny_policy
from tests.support.tiny_resources import make_resources

RATE = 0.01
STEP = OptimiserSettings(learning_rate=RATE, warmup_steps=0, clip_norm=1e9)
ANSWERS = [Answer("", True, None, tuple(p), tuple(c)) for p, c in zip(PROMPTS, COMPLETIONS, strict=True)]
ANSWERED = [
    JudgedQuestion("first", ANSWERS[:2], [1.8, 0.8], weight=0.6),
    JudgedQuestion("other", ANSWERS[2:], [0.0, 1.0, 0.8], weight=1.4),
]
EPSILON = 1e-4
"""Added to the standard deviation of a group."""


def learned(
    answered: list[JudgedQuestion], model: nn.Module, budget: int = 16384, passes: int = 1, temperature: float = 1.0
) -> tuple[Companion, dict[str, float]]:
    companion = Companion(model, torch.optim.SGD(model.parameters(), lr=RATE))
    seen = reinforce(
        make_resources(token_budget=budget),
        companion,
        answered,
        temperature=temperature,
        passes=passes,
        optimiser=STEP,
        key="rewards.verifier.optimiser",
    )
    return companion, seen


def loss_by_definition(model: Any, temperature: float) -> Tensor:
    """Return the loss of the first step, written from the formula; its ratio is one."""
    rows = plain_log_probs(model, SEQUENCES, temperature)
    terms = []
    for places, worth, weight in (((0, 1), [1.8, 0.8], 0.6), ((2, 3, 4), [0.0, 1.0, 0.8], 1.4)):
        mean = sum(worth) / len(worth)
        deviation = (sum((value - mean) ** 2 for value in worth) / len(worth)) ** 0.5
        for place, value in zip(places, worth, strict=True):
            advantage = weight * (value - mean) / (deviation + EPSILON)
            terms.append(-advantage * torch.exp(rows[place] - rows[place].detach()))
    return torch.cat(terms).mean()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("budget", [20, 16384])
def test_a_step_is_that_of_the_clipped_objective_on_the_same_rows_however_they_are_cut(
    budget: int, temperature: float
) -> None:
    model, plain = tiny_policy(spread=2.0), tiny_policy(spread=2.0)
    companion, seen = learned(ANSWERED, model, budget, temperature=temperature)
    loss = loss_by_definition(plain, temperature)
    loss.backward()
    norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in plain.parameters()])
    assert seen["loss"] == pytest.approx(float(loss.detach()), abs=1e-6)
    assert seen["gradient_norm"] == pytest.approx(float(norm), rel=1e-5)
    assert companion.updates == 1 and seen["trained_share"] == 1.0
    for moved, begun in zip(model.parameters(), plain.parameters(), strict=True):
        assert begun.grad is not None
        torch.testing.assert_close(moved.detach(), begun.detach() - RATE * begun.grad, rtol=1e-5, atol=1e-8)


def test_every_pass_is_a_step() -> None:
    companion, _ = learned(ANSWERED, tiny_policy(spread=2.0), passes=3)
    assert companion.updates == 3


def test_questions_whose_answers_are_all_worth_the_same_move_nothing() -> None:
    alike = [JudgedQuestion("first", ANSWERS[:2], [1.8, 1.8]), JudgedQuestion("other", ANSWERS[2:], [0.0, 0.0, 0.0])]
    for answered in (alike, [], [JudgedQuestion("none", [MISSING] * 2, [0.0, 1.0])]):
        model = tiny_policy()
        companion, seen = learned(answered, model)
        assert seen == {"trained_share": 0.0} and companion.updates == 0
        begun = tiny_policy().state_dict()
        assert all(torch.equal(value, begun[name]) for name, value in model.state_dict().items())


def test_they_do_not_thin_the_others_out() -> None:
    """The mean is only over the tokens of questions whose answers differ in worth."""
    alone, both = tiny_policy(spread=2.0), tiny_policy(spread=2.0)
    learned([ANSWERED[1]], alone)
    _, seen = learned([JudgedQuestion("first", ANSWERS[:2], [1.8, 1.8]), ANSWERED[1]], both)
    assert seen["trained_share"] == 0.5
    left, right = alone.state_dict(), both.state_dict()
    assert all(torch.equal(value, right[name]) for name, value in left.items())


def test_what_is_not_finite_names_the_key_of_the_recipe() -> None:
    broken = [JudgedQuestion("first", ANSWERS[:2], [1.0, 0.0], weight=float("inf"))]
    with pytest.raises(NotFinite, match=r"^rewards\.verifier\.optimiser: "):
        learned(broken, tiny_policy())
