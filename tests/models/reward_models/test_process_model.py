"""A process reward model and its fit: values of steps, loss by hand, independence of the cut, and first errors."""

import math
import random
from pathlib import Path

import pytest
import torch

from models.base.errors import UserError
from models.learner.optimiser import OptimiserSettings
from models.learner.packing import Sequences
from models.method.problem import Problem
from models.reward_models.fit import RewardModelSettings
from models.reward_models.fit_process import accumulate_steps, fit_process_model, sequences_of_solutions, step_loss
from models.reward_models.process import ProcessReading, read_reading, step_values, write_reading
from models.reward_models.scoring import score_all
from models.reward_models.solutions import Solution
from models.reward_models.step_accuracy import FirstErrors, first_errors, right_of_values, step_accuracy
from tests.support.tiny_reward_models import tiny_reward_model

NAN = math.nan


def made(prompt: list[int], completion: list[int], ends: tuple[int, ...], labels: tuple[float, ...]) -> Solution:
    problem = Problem(str(prompt), "", tokens=tuple(prompt))
    return Solution(problem, tuple(completion), ends, "", True, False, labels)


def test_a_steps_value_is_the_score_of_the_completion_that_ends_there() -> None:
    model = tiny_reward_model(torch.float64)
    whole = Sequences([[3, 4], [3, 4], [5]], [[6, 7, 8, 9, 1], [6, 2, 1], [8, 1]])
    ends = [(1, 4), (0, 2), (1,)]
    values = step_values(model, whole, ends)
    for prompt, completion, cut, row in zip(whole.prompts, whole.completions, ends, values, strict=True):
        prefixes = Sequences([prompt] * len(cut), [completion[: end + 1] for end in cut])
        torch.testing.assert_close(row, score_all(model, prefixes).sigmoid(), atol=1e-5, rtol=0)


def test_what_stands_behind_a_step_does_not_change_its_value() -> None:
    first, second = step_values(tiny_reward_model(), Sequences([[3], [3]], [[4, 5, 6], [4, 5, 9]]), [(1,), (1,)])
    torch.testing.assert_close(first, second)


def test_loss_and_gradient_are_those_of_a_hand_computation_and_unknown_labels_have_none() -> None:
    logits = torch.tensor([0.0, math.log(3), math.log(3), 5.0], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([1.0, 0.0, 0.75, NAN], dtype=torch.float64)
    loss = step_loss(logits, labels)  # values 1/2, 3/4, 3/4
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    torch.testing.assert_close(loss, torch.tensor([math.log(2), math.log(4), entropy, 0.0], dtype=torch.float64))
    loss.sum().backward()
    torch.testing.assert_close(logits.grad, torch.tensor([-0.5, 0.75, 0.0, 0.0], dtype=torch.float64))


def test_a_batchs_loss_is_the_mean_over_its_labelled_steps_however_it_is_cut() -> None:
    solutions = [
        made([3], [4, 5, 1], (0, 2), (1.0, 0.0)), made([6, 7], [8, 1], (1,), (NAN,)), made([3], [9, 1], (1,), (1.0,)),
    ]  # fmt: skip
    seen, gradients = [], []
    for budget in (4, 16384):
        model = tiny_reward_model(torch.float64)
        watched = accumulate_steps(model, solutions, RewardModelSettings(token_budget=max(budget, 8)))
        seen.append(float(watched["loss"]))
        gradients.append(model.score.weight.grad.clone())
    values = step_values(
        tiny_reward_model(torch.float64), sequences_of_solutions(solutions), [each.ends for each in solutions]
    )
    wanted = -(math.log(values[0][0]) + math.log(1 - values[0][1]) + math.log(values[2][0])) / 3
    assert seen == pytest.approx([wanted] * 2, rel=1e-5)
    torch.testing.assert_close(*gradients)


@pytest.mark.rotating(of=6)
def test_it_learns_which_steps_are_good_and_one_seed_gives_one_model() -> None:
    chance = random.Random(0)
    solutions = []
    for _ in range(150):
        prompt, steps = chance.randint(4, 9), [chance.randint(4, 9) for _ in range(3)]
        labels = tuple(float(all(step >= prompt for step in steps[: place + 1])) for place in range(3))
        solutions.append(made([prompt], steps, (0, 1, 2), labels))
    settings = RewardModelSettings(
        steps=60, batch_pairs=32, optimiser=OptimiserSettings(learning_rate=3e-3, warmup_steps=5)
    )
    rows = []
    for _ in range(2):
        model = tiny_reward_model()
        fit_process_model(model, solutions[:100], settings, seed=0)
        held = solutions[100:]
        rows.append([row.tolist() for row in step_values(model, sequences_of_solutions(held), [s.ends for s in held])])
    assert step_accuracy(rows[0], [each.labels for each in held]) > 0.9
    assert rows[0] == rows[1]


def test_without_a_single_label_there_is_nothing_to_fit() -> None:
    with pytest.raises(UserError, match="no step of any solution has a label"):
        fit_process_model(tiny_reward_model(), [made([3], [4, 1], (1,), (NAN,))], RewardModelSettings(), seed=0)


def test_accuracies_by_hand() -> None:
    values, labels = [[0.9, 0.2], [0.6, 0.6, 0.1]], [[1.0, 0.0], [0.75, 0.25, NAN]]
    assert step_accuracy(values, labels) == pytest.approx((1 + 1 + 1 + 0.5) / 4)
    sides = right_of_values(values, labels)
    assert sides is not None and sides.estimate == pytest.approx((1.0 + 0.5) / 2)
    assert math.isnan(step_accuracy([[0.3]], [[1.0]])) and right_of_values([[0.3]], [[NAN]]) is None


def test_how_it_is_read_is_read_back_and_a_foreign_file_is_refused(tmp_path: Path) -> None:
    assert read_reading(tmp_path) is None
    write_reading(tmp_path, ProcessReading((". ",), "product"))
    assert read_reading(tmp_path) == ProcessReading((". ",), "product")
    (tmp_path / "process.json").write_text('{"aggregate": "best"}')
    with pytest.raises(UserError, match="does not describe steps"):
        read_reading(tmp_path)


def test_first_errors_are_counted_as_processbench_does_by_hand() -> None:
    nan = math.nan
    labels: list[list[float]] = [[1, 0, nan], [0, nan], [1, 1], [1], [1, nan], []]
    values: list[list[float]] = [[0.9, 0.1, 0.9], [0.9, 0.2], [0.9, 0.8], [0.3], [0.9, 0.9], []]
    made = first_errors(values, labels)
    # Of two wrong solutions, one has its first error found; of two right ones, one is accepted; two do not count.
    assert (made.erroneous, made.correct, made.f1) == (0.5, 0.5, 0.5)
    assert FirstErrors(1.0, 0.25).f1 == pytest.approx(0.4) and FirstErrors(0.0, 0.0).f1 == 0.0
    assert math.isnan(first_errors([[0.9]], [[1]]).f1)  # none of the solutions has an error


def test_who_names_no_error_and_who_names_the_first_step_always_is_worth_nothing() -> None:
    labels = [[1, 0], [1, 1]]
    assert first_errors([[1, 1], [1, 1]], labels).f1 == 0.0 and first_errors([[0, 0], [0, 0]], labels).f1 == 0.0
    assert first_errors(labels, labels).f1 == 1.0
