"""Smoothed token rewards: values by hand, the kernel as a matrix, its limits, the baseline, and a learning policy."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.learner.optimiser import OptimiserSettings
from models.method.episode import Turn
from models.method.rollout import RolloutEpisode
from models.method.scored import Scored
from models.method.slots import Slots
from models.parts.advantage.windowed import Shape, Windowed, smoothed
from models.parts.objective.reinforce import Reinforce
from models.parts.reference.frozen import NoReference
from models.parts.rollouts.sample import Sample
from models.parts.select.everything import Everything
from models.recipes.load import load_recipe
from tests.support.tiny_loops import SCHEDULE, PaidSevens, run, save_start
from tests.support.tiny_models import SEQUENCES, scored
from tests.support.tiny_resources import make_resources


def matrix(tokens: int, window: int, stride: int, shape: Shape) -> Tensor:
    """Return the kernel as a matrix, [windows, tokens], entry by entry."""
    rows = []
    for centre in range(0, tokens, stride):
        weights = []
        for place in range(tokens):
            apart = abs(place - centre)
            inside = apart <= window // 2
            weights.append((1.0 if shape == "uniform" else 1 - apart / (window // 2 + 1)) if inside else 0.0)
        rows.append([weight / sum(weights) for weight in weights])
    return torch.tensor(rows, dtype=torch.float64)


def worth(rows: Sequence[Sequence[float]], sizes: Sequence[int]) -> Scored:
    """Return completions with these rewards of their tokens."""
    tokens = [torch.tensor(row) for row in rows]
    made = scored([float(row.sum()) for row in tokens], sizes)
    rollouts = [replace(rollout, completion=(1,) * len(row)) for rollout, row in zip(made.rollouts, rows, strict=True)]
    return replace(made, rollouts=rollouts, token_rewards=tokens)


def test_by_hand() -> None:
    # Windows of three tokens: the means of r are 1, 2 and 1.5; (2, 0, 3) has (2 + 0) / 2, 5 / 3 and (0 + 3) / 2.
    means = [1.0, 5 / 3, 1.5]
    expected = [means[0] / 2 + means[1] / 3, means[0] / 2 + means[1] / 3 + means[2] / 2, means[1] / 3 + means[2] / 2]
    row = smoothed(torch.tensor([2.0, 0.0, 3.0], dtype=torch.float64), 3, 1, "uniform")
    assert row.tolist() == pytest.approx(expected)


@pytest.mark.parametrize("shape", ["uniform", "triangular"])
@pytest.mark.parametrize(
    ("tokens", "window", "stride"), [(1, 5, 1), (4, 3, 1), (9, 5, 2), (8, 5, 3), (7, 99, 4), (6, 1, 1)]
)
def test_it_is_the_kernel_applied_twice_as_a_matrix(shape: Shape, tokens: int, window: int, stride: int) -> None:
    rewards = torch.randn(tokens, dtype=torch.float64, generator=torch.Generator().manual_seed(tokens))
    dense = matrix(tokens, window, stride, shape)
    torch.testing.assert_close(smoothed(rewards, window, stride, shape), dense.T @ (dense @ rewards))


def test_the_gradient_is_that_of_the_loss_over_windows() -> None:
    generator = torch.Generator().manual_seed(1)
    rewards, logits = (torch.randn(9, dtype=torch.float64, generator=generator) for _ in range(2))
    logits.requires_grad_()
    log_probs, dense = torch.nn.functional.logsigmoid(logits), matrix(9, 5, 1, "triangular")
    (over_windows,) = torch.autograd.grad(-((dense @ rewards) * (dense @ log_probs)).sum(), logits, retain_graph=True)
    (over_tokens,) = torch.autograd.grad(-(smoothed(rewards, 5, 1, "triangular") * log_probs).sum(), logits)
    torch.testing.assert_close(over_tokens, over_windows)


def test_one_token_gives_its_own_reward_and_a_whole_completion_the_mean_of_all() -> None:
    rewards = torch.tensor([1.0, 0.0, -2.0, 5.0], dtype=torch.float64)
    torch.testing.assert_close(smoothed(rewards, 1, 1, "uniform"), rewards)
    torch.testing.assert_close(smoothed(rewards, 101, 1, "uniform"), torch.full_like(rewards, 1.0))


def test_the_baseline_is_the_mean_of_the_others_that_reach_the_token() -> None:
    given = worth([[1.0, 2.0, 4.0], [3.0], [5.0, 6.0], [7.0]], [3, 1])
    rows = Windowed(window=1)(make_resources(), given).tokens
    assert [row.tolist() for row in rows] == [[1.0 - 4.0, 2.0 - 6.0, 4.0], [3.0 - 3.0], [5.0 - 2.0, 6.0 - 2.0], [7.0]]


@pytest.mark.parametrize("window", [1, 3, 5])
def test_the_baseline_changes_no_expected_gradient(window: int) -> None:
    """A policy of two tokens that may end after the first; all pairs of its completions are enumerated."""
    logits = torch.tensor([0.3, -0.6], dtype=torch.float64, requires_grad=True)
    first, second = torch.sigmoid(logits)
    log_probs = {
        (1,): [(1 - first).log()],
        (2, 3): [first.log(), second.log()],
        (2, 4): [first.log(), (1 - second).log()],
    }
    paid = {(1,): [0.5], (2, 3): [0.0, 2.0], (2, 4): [1.0, -1.0]}
    expected = []
    for baseline in (True, False):
        total = torch.zeros(2, dtype=torch.float64)
        for pair in product(log_probs, repeat=2):
            chance = float(torch.stack([sum(log_probs[answer]) for answer in pair]).sum().detach().exp())
            sizes = [2] if baseline else [1, 1]
            rows = Windowed(window=window)(make_resources(), worth([paid[answer] for answer in pair], sizes)).tokens
            for answer, row in zip(pair, rows, strict=True):
                surrogate = sum(float(a) * log_prob for a, log_prob in zip(row, log_probs[answer], strict=True))
                total += chance * torch.autograd.grad(surrogate, logits, retain_graph=True)[0]
        expected.append(total)
    torch.testing.assert_close(expected[0], expected[1], atol=1e-6, rtol=0)


def test_the_environments_tokens_are_in_no_window() -> None:
    given = worth([[1.0, 0.0, 0.0, 3.0]], [1])
    [rollout] = given.rollouts
    turns = RolloutEpisode(turns=(Turn(0, 1), Turn(3, 4)))
    given = replace(given, rollouts=[replace(rollout, episode=turns)])
    [row] = Windowed(window=3)(make_resources(), given).tokens
    assert row.tolist() == [2.0, 0.0, 0.0, 2.0]


@pytest.mark.rotating(of=6)
def test_rewarded_tokens_become_frequent(tmp_path: Path) -> None:
    source = Sample(prompts=6, group_size=8, max_tokens=5)
    slots = Slots(source, [PaidSevens()], [Everything()], Windowed(window=3), Reinforce(), NoReference())
    optimiser = OptimiserSettings(learning_rate=3e-3, warmup_steps=1)
    schedule = replace(SCHEDULE, rounds=10, epochs=1, minibatches=1, optimiser=optimiser)
    start = save_start(tmp_path / "start")
    _, diary = run(start, tmp_path / "checkpoints", schedule=schedule, slots=slots)
    first, last = (diary.metrics[number]["reward/paid_sevens"] for number in (1, 10))
    assert last > first + 0.15


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("advantage.window=4", "window is 4, but a window has a token as its centre; set it to an odd number"),
        ("advantage.stride=6", "stride is 6, but a window has 5 tokens"),
        ("rewards=[{name: exact_answer}]", "advantage windowed reads rewards token by token"),
    ],
)
def test_settings_that_give_no_windows_are_refused_in_one_line(override: str, line: str) -> None:
    with pytest.raises(UserError, match=line):
        load_recipe("pcpg", [override])


def test_sequences_of_any_length_are_accepted() -> None:
    rows = [[0.5] * len(ids) for ids in SEQUENCES.completions]
    made = Windowed(window=7, stride=2)(make_resources(), worth(rows, [2, 3])).tokens
    assert [len(row) for row in made] == [len(row) for row in rows]
