"""Supervised fine-tuning: its loss is that of the completions alone, and does not depend on how rows are packed."""

from itertools import islice

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from models.base.errors import UserError
from models.learner.optimiser import OptimiserSettings
from models.learner.packing import Sequences
from models.learner.supervised import (
    SupervisedSettings,
    accumulate,
    fit_supervised,
    negative_log_likelihood,
    shuffled_batches,
)
from tests.support.device_here import placed
from tests.support.tiny_models import SEQUENCES, gradients, leave_room_for, plain_log_probs, tiny_policy

FAST = OptimiserSettings(learning_rate=3e-3, warmup_steps=2)


def test_loss_and_gradient_are_those_of_cross_entropy_with_the_prompt_masked() -> None:
    ours, plain = tiny_policy(), tiny_policy()
    loss = accumulate(ours, SEQUENCES, token_budget=10**6, autocast=None)
    width = max(SEQUENCES.lengths)
    ids, labels = torch.zeros(len(SEQUENCES), width, dtype=torch.long), torch.full((len(SEQUENCES), width), -100)
    for row, (prompt, completion) in enumerate(zip(SEQUENCES.prompts, SEQUENCES.completions, strict=True)):
        ids[row, : len(prompt) + len(completion)] = torch.tensor([*prompt, *completion])
        labels[row, len(prompt) : len(prompt) + len(completion)] = torch.tensor(completion)
    expected = functional.cross_entropy(
        plain(placed(ids)).logits[:, :-1].flatten(0, 1), placed(labels)[:, 1:].flatten()
    )
    expected.backward()
    assert float(loss) == pytest.approx(float(expected.detach()), abs=1e-10)
    torch.testing.assert_close(gradients(ours), gradients(plain), rtol=1e-8, atol=1e-10)


def test_a_token_moved_from_the_completion_to_the_prompt_leaves_the_loss_by_its_own_log_prob() -> None:
    model = tiny_policy()
    both = accumulate(model, Sequences([[3, 4]], [[5, 6]]), 100, None)
    last = accumulate(model, Sequences([[3, 4, 5]], [[6]]), 100, None)
    (log_prob,) = plain_log_probs(model, Sequences([[3, 4]], [[5]]))
    assert float(2 * both - last) == pytest.approx(-float(log_prob.detach()), abs=1e-10)


@pytest.mark.parametrize("budget", [8, 14, 40])
def test_loss_and_gradients_do_not_depend_on_the_token_budget(budget: int) -> None:
    whole, cut = tiny_policy(), tiny_policy()
    assert float(accumulate(cut, SEQUENCES, budget, None)) == pytest.approx(
        float(accumulate(whole, SEQUENCES, 10**6, None)), abs=1e-10
    )
    torch.testing.assert_close(gradients(cut), gradients(whole), rtol=1e-8, atol=1e-10)


def test_the_held_out_loss_is_the_training_loss_of_the_same_rows() -> None:
    model = tiny_policy()
    loss = accumulate(model, SEQUENCES, 10**6, None)
    assert negative_log_likelihood(model, SEQUENCES, 14) == pytest.approx(float(loss), abs=1e-10)


@pytest.mark.parametrize(("rows", "batch"), [(7, 3), (6, 6), (10, 4)])
def test_every_row_comes_once_an_epoch(rows: int, batch: int) -> None:
    epochs = 6
    seen = [row for actual in islice(shuffled_batches(rows, batch, seed=3), epochs * rows // batch) for row in actual]
    orders = [seen[epoch * rows : (epoch + 1) * rows] for epoch in range(epochs)]
    assert all(sorted(order) == list(range(rows)) for order in orders)
    assert len({tuple(order) for order in orders}) > 1  # the order is not the same in all epochs


def test_the_seed_decides_the_weights_to_the_last_bit() -> None:
    def fitted(seed: int) -> dict[str, Tensor]:
        model = tiny_policy(torch.float32)
        fit_supervised(model, SEQUENCES, SupervisedSettings(steps=5, batch=2, optimiser=FAST), seed=seed)
        weights: dict[str, Tensor] = model.state_dict()
        return weights

    first, again, other = fitted(1), fitted(1), fitted(2)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_what_was_demonstrated_becomes_likely_and_is_reported() -> None:
    model, reported = tiny_policy(torch.float32), []
    settings = SupervisedSettings(steps=30, batch=5, report_every=10, optimiser=FAST)
    before = negative_log_likelihood(model, SEQUENCES, 1000)
    last = fit_supervised(
        model, SEQUENCES, settings, seed=0, report=lambda step, metrics: reported.append((step, metrics))
    )
    assert negative_log_likelihood(model, SEQUENCES, 1000) < 0.3 < before
    assert [step for step, _ in reported] == [10, 20, 30] and reported[-1][1] == last


def test_nothing_to_learn_from_is_one_clear_line() -> None:
    with pytest.raises(UserError, match="warm_start: no demonstrations"):
        fit_supervised(tiny_policy(), Sequences([], []), SupervisedSettings(), seed=0)


def test_a_loss_that_is_not_finite_stops_before_any_weight_moves() -> None:
    model = tiny_policy(torch.float32)
    with torch.no_grad():
        model.model.norm.weight[0] = float("inf")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(UserError, match="update 0: the loss is not finite; lower warm_start"):
        fit_supervised(model, SEQUENCES, SupervisedSettings(steps=1), seed=0)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_step_that_runs_out_of_memory_is_made_again_and_is_the_same_step() -> None:
    undisturbed, model = tiny_policy(), tiny_policy()
    settings = SupervisedSettings(steps=3, batch=5, token_budget=64)
    fit_supervised(undisturbed, SEQUENCES, settings, seed=0)
    leave_room_for(model, 20)
    with pytest.warns(UserWarning, match="warm start, update 0: out of memory with rows of 64 tokens"):
        fit_supervised(model, SEQUENCES, settings, seed=0)
    torch.testing.assert_close(model.state_dict(), undisturbed.state_dict(), rtol=1e-6, atol=1e-8)
