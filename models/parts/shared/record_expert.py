"""An expert on records: a logistic regression of an answer on the values that a prompt states, and what it looks at.

    P(answer | record) = sigmoid(b + sum_j w_j z_j),   z_j = (x_j - mean_j) / spread_j
    weight of feature j in a record = |w_j z_j|

A value that a record does not state counts as the mean. The fit minimises the mean negative log-likelihood plus
ridge / 2 |w|^2, by Newton's method in float64; it has a single minimum.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from models.base.errors import UserError

_STEPS = 50


@dataclass(frozen=True, eq=False)
class RecordExpert:
    """A fitted logistic regression, with the names of its features."""

    names: tuple[str, ...]
    mean: Tensor
    """Mean of each feature's stated values, [features], float64."""
    spread: Tensor
    """Standard deviation of each feature's stated values, 1 where it is zero, [features], float64."""
    weights: Tensor
    """Weight of each standardised feature, [features], float64."""
    bias: float

    def importance(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return |w z| of each stated feature that the expert knows."""
        places = {name: place for place, name in enumerate(self.names)}
        return {
            name: abs(float(self.weights[at] * (value - self.mean[at]) / self.spread[at]))
            for name, value in values.items()
            if (at := places.get(name)) is not None
        }

    def chance(self, values: Mapping[str, float]) -> float:
        """Return the probability of the answer."""
        row = standardised([values], self.names, self.mean, self.spread)[0]
        return float(torch.sigmoid(row @ self.weights + self.bias))


def stated(pattern: re.Pattern[str], text: str) -> dict[str, tuple[float, range]]:
    """Read the features that a text states: name -> value and range of characters; the last mention counts.

    Args:
        pattern: regular expression with the groups `name` and `value`.
        text: the text; a value that is not a number is left out.
    """
    features = {}
    for match in pattern.finditer(text):
        try:
            features[match["name"]] = float(match["value"]), range(match.start(), match.end())
        except ValueError:
            continue
    return features


def standardised(rows: Sequence[Mapping[str, float]], names: Sequence[str], mean: Tensor, spread: Tensor) -> Tensor:
    """Return z of each record, [records, features], float64; zero where a value is not stated."""
    nan = float("nan")
    given = torch.tensor([[row.get(name, nan) for name in names] for row in rows], dtype=torch.float64)
    return ((given - mean) / spread).nan_to_num(nan=0.0)


def fit_expert(rows: Sequence[Mapping[str, float]], answers: Sequence[bool], ridge: float, where: str) -> RecordExpert:
    """Fit the regression.

    Args:
        rows: stated values of each record, [records].
        answers: whether it has the answer, [records].
        ridge: penalty of the weights, above 0.
        where: key of the recipe that names the records, for the error message.

    Raises:
        UserError: no record states a value, or all have the same answer.
    """
    names = tuple(sorted({name for row in rows for name in row}))
    if not names:
        raise UserError(f"{where}: no record states a feature; change the regular expression `feature`")
    if len(set(answers)) < 2:
        raise UserError(f"{where}: all records have the same answer; set `answer` to another one of them")
    nan = float("nan")
    given = torch.tensor([[row.get(name, nan) for name in names] for row in rows], dtype=torch.float64)
    mean = given.nanmean(0)
    spread = (given - mean).square().nanmean(0).sqrt()
    spread = torch.where(spread > 0, spread, torch.ones_like(spread))
    design = torch.cat([standardised(rows, names, mean, spread), torch.ones(len(rows), 1, dtype=torch.float64)], 1)
    targets = torch.tensor(answers, dtype=torch.float64)
    penalty = torch.full((len(names) + 1,), ridge, dtype=torch.float64)
    penalty[-1] = 0.0
    weights = torch.zeros(len(names) + 1, dtype=torch.float64)
    for _ in range(_STEPS):
        chances = torch.sigmoid(design @ weights)
        slope = design.T @ (chances - targets) / len(rows) + penalty * weights
        curvature = design.T @ (design * (chances * (1 - chances))[:, None]) / len(rows) + torch.diag(penalty)
        curvature += 1e-12 * torch.eye(len(weights), dtype=torch.float64)
        step = torch.linalg.solve(curvature, slope)
        weights = weights - step * min(1.0, 5.0 / float(step.norm().clamp(min=1e-300)))
        if float(slope.abs().max()) < 1e-12:
            break
    return RecordExpert(names, mean, spread, weights[:-1], float(weights[-1]))
