"""Five tiny tasks of machine learning: data from a seed, a script that learns from them, and the score of its output.

    curve        noisy values of a polynomial            1 - squared error / variance
    series       the next value of an oscillation        1 - squared error / variance
    classes      points inside and outside a circle      accuracy
    neighbours   noisy classes, one useless input        accuracy
    game         a strategy for a zero-sum game          1 - what the best opponent wins, payoffs in [-1, 1]

A script reads `x`, `y` and `t` (inputs, targets, inputs of the test; of the game: its payoffs in `x`) as lists, and
prints a list of numbers. It needs Python's standard library alone, as the sandbox has no other. It never holds the
targets of the test, so it cannot print a score that it did not reach.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

TaskName = Literal["curve", "series", "classes", "neighbours", "game"]
Array = NDArray[np.float64]
ROWS = 40
"""Number of rows to learn from, and of rows of the test."""


@dataclass(frozen=True)
class ExperimentScript:
    """A script and the values that its settings may take."""

    settings: dict[str, tuple[str, ...]]
    """Values of the settings, which are the first lines of the script; the first value of each is poor."""
    body: tuple[str, ...]
    """The further lines."""

    def source(self, values: Sequence[str]) -> str:
        """Return the script with these values of the settings."""
        heads = (f"{name} = {value}" for name, value in zip(self.settings, values, strict=True))
        return "\n".join((*heads, *self.body))


SCRIPTS: dict[TaskName, ExperimentScript] = {
    "curve": ExperimentScript(
        {"width": ("9", "0.3", "0.01"), "power": ("1", "2", "4")},
        (
            "near = lambda v: [math.exp(-abs(v - a) ** power / width) for a in x]",
            "mean = lambda w: sum(p * q for p, q in zip(w, y)) / (sum(w) or 1)",
            "print([mean(near(v)) for v in t])",
        ),
    ),
    "series": ExperimentScript(
        {"lags": ("1", "2", "6"), "rate": ("0.0001", "0.01", "0.1")},
        (
            "w = [0] * lags",
            "dot = lambda r: sum(p * q for p, q in zip(w, r[-lags:]))",
            "for r, v in 20 * list(zip(x, y)): e = v - dot(r); w = [p + rate * e * q for p, q in zip(w, r[-lags:])]",
            "print([dot(r) for r in t])",
        ),
    ),
    "classes": ExperimentScript(
        {"rate": ("0.001", "0.1", "9"), "steps": ("1", "9", "60")},
        (
            "w = [0] * 5",
            "f = lambda r: [r[0], r[1], r[0] ** 2, r[1] ** 2, 1]",
            "p = lambda r: 1 / (1 + math.exp(-max(-30, min(30, sum(a * b for a, b in zip(w, f(r)))))))",
            "for r, v in steps * list(zip(x, y)): e = v - p(r); w = [a + rate * e * b for a, b in zip(w, f(r))]",
            "print([int(p(r) > 0.5) for r in t])",
        ),
    ),
    "neighbours": ExperimentScript(
        {"k": ("1", "5", "25"), "scale": ("9", "1", "0")},
        (
            "far = lambda r, s: (r[0] - s[0]) ** 2 + scale * (r[1] - s[1]) ** 2",
            "near = lambda r: sorted(range(len(x)), key=lambda n: far(r, x[n]))[:k]",
            "print([int(sum(y[n] for n in near(r)) > k / 2) for r in t])",
        ),
    ),
    "game": ExperimentScript(
        {"steps": ("2", "30", "400"), "rate": ("5", "0.3", "0.01")},
        (
            "p, total = [0.8, 0.1, 0.1], [0, 0, 0]",
            "new = lambda p: [a * math.exp(rate * sum(b * c for b, c in zip(r, p))) for a, r in zip(p, x)]",
            "for _ in range(steps): total = [a + b for a, b in zip(total, p)]; q = new(p); p = [a / sum(q) for a in q]",
            "print([a / steps for a in total])",
        ),
    ),
}
"""Script of each task."""


@dataclass(frozen=True, eq=False)
class ExperimentData:
    """Data of a task."""

    inputs: Array
    targets: Array
    test_inputs: Array
    test_targets: Array
    """[tests]; of the game, as many zeros as there are actions."""

    @property
    def preamble(self) -> str:
        """Lines of Python that define what a script reads."""
        rows = (("x", self.inputs), ("y", self.targets), ("t", self.test_inputs))
        return "import math\n" + "".join(f"{name} = {value.tolist()}\n" for name, value in rows)


@lru_cache(maxsize=1024)
def data_of(task: TaskName, seed: int) -> ExperimentData:
    """Return the data of a task; equal seeds give equal data."""
    random = np.random.default_rng([seed, sorted(SCRIPTS).index(task)])
    if task == "game":
        upper = np.triu(random.uniform(-1, 1, (3, 3)), 1)
        upper[0, 1], upper[1, 2], upper[0, 2] = abs(upper[0, 1]), abs(upper[1, 2]), -abs(upper[0, 2])
        return ExperimentData((upper - upper.T).round(3), np.zeros(1), np.zeros(1), np.zeros(3))
    if task == "curve":
        inputs = random.uniform(-1, 1, 2 * ROWS)
        values = np.polyval([4.0, random.normal() / 2, -3.0, random.normal() / 2], inputs)
        targets = values + 0.3 * random.standard_normal(2 * ROWS)
    elif task == "series":
        angle, phase = random.uniform(0.6, 1.2), random.uniform(0, 6)
        wave = np.sin(angle * np.arange(2 * ROWS + 6) + phase) + 0.05 * random.standard_normal(2 * ROWS + 6)
        inputs = np.stack([wave[n : n + 2 * ROWS] for n in range(6)], 1)
        targets = wave[6:]
    elif task == "classes":
        inputs = random.uniform(-1, 1, (2 * ROWS, 2))
        targets = ((inputs**2).sum(1) > random.uniform(0.5, 0.7)).astype(float)
    else:
        inputs = random.standard_normal((2 * ROWS, 2))
        clean = inputs[:, 0] > 0
        flipped = (random.random(2 * ROWS) < 0.2) & (np.arange(2 * ROWS) < ROWS)
        targets = (clean ^ flipped).astype(float)
    inputs, targets = inputs.round(3), targets.round(3)
    return ExperimentData(inputs[:ROWS], targets[:ROWS], inputs[ROWS:], targets[ROWS:])


def score_of(task: TaskName, data: ExperimentData, output: str) -> float | None:
    """Return the score of a script's output in [0, 1]; None if its last line is not a list of that many numbers."""
    try:
        printed = json.loads(output.strip().splitlines()[-1])
        numbers = [float(value) for value in printed]
    except (ValueError, IndexError, TypeError):
        return None
    if len(numbers) != len(data.test_targets) or not all(math.isfinite(value) for value in numbers):
        return None
    answers = np.array(numbers)
    if task == "game":
        weights = np.maximum(answers, 0.0)
        if not weights.sum():
            return None
        return float(max(0.0, 1.0 - (data.inputs @ (weights / weights.sum())).max()))
    if task in ("classes", "neighbours"):
        return float((answers == data.test_targets).mean())
    error = ((answers - data.test_targets) ** 2).mean() / data.test_targets.var()
    return float(max(0.0, 1.0 - error))
