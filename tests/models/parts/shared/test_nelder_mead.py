"""The search without gradients: its trials equal those of scipy, it finds the maximum of a bowl, and it resumes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from models.parts.shared.nelder_mead import NelderMead, begin_search


def trials_of(worth: Callable[[Any], float], first: list[float], reach: float, count: int) -> tuple[Any, NelderMead]:
    search, tried = begin_search(torch.tensor(first, dtype=torch.float64), reach), []
    for _ in range(count):
        tried.append(search.point.tolist())
        search = search.after(worth(search.point.numpy()))
    return np.array(tried), search


def rosenbrock(x: Any) -> float:
    return float(-(100.0 * (x[1] - x[0] ** 2) ** 2 + (1.0 - x[0]) ** 2))


def bowl(x: Any) -> float:
    return float(-np.sum((x - np.arange(1.0, len(x) + 1.0)) ** 2))


def cliff(x: Any) -> float:
    return float(-abs(x[0]) - 50.0 * (abs(x[-1]) > 0.31) - abs(x).max())


@pytest.mark.parametrize("worth", [rosenbrock, bowl, cliff])
@pytest.mark.parametrize("first", [[-1.2, 1.0], [0.3, 0.3], [4.0, -2.0]])
def test_its_trials_are_those_of_scipy(worth: Callable[[Any], float], first: list[float]) -> None:
    simplex = np.array([first, [first[0] + 0.5, first[1]], [first[0], first[1] + 0.5]])
    seen: list[Any] = []

    def minus(x: Any) -> float:
        seen.append(np.array(x))
        return -worth(x)

    minimize(minus, first, method="Nelder-Mead", options={"initial_simplex": simplex, "maxfev": 60, "xatol": 0})
    tried, _ = trials_of(worth, first, 0.5, 60)
    np.testing.assert_allclose(tried, np.array(seen[:60]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_it_comes_to_the_largest_worth_of_a_bowl(dimensions: int) -> None:
    _, search = trials_of(bowl, [0.0] * dimensions, 0.5, 200)
    assert search.best.tolist() == pytest.approx(list(range(1, dimensions + 1)), abs=1e-4)


@pytest.mark.parametrize("pause", [1, 3, 4, 7, 20])
def test_written_and_read_it_goes_on_as_if_nothing_had_been(pause: int) -> None:
    tried, _ = trials_of(rosenbrock, [-1.2, 1.0], 0.5, 30)
    again, search = trials_of(rosenbrock, [-1.2, 1.0], 0.5, pause)
    search = NelderMead.read(search.written(), 2)
    rest = []
    for _ in range(30 - pause):
        rest.append(search.point.tolist())
        search = search.after(rosenbrock(search.point.numpy()))
    assert np.array_equal(tried, np.concatenate([again, rest]))


def test_before_anything_is_known_the_best_is_where_it_begins() -> None:
    assert begin_search(torch.tensor([3.0, 4.0], dtype=torch.float64), 0.5).best.tolist() == [3.0, 4.0]
