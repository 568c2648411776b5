"""Choice of the best method for each difficulty from a sweep, and its confirmation on other problems (paper 281).

    cell         a method with a scorer at a budget, measured on all problems: accuracy, tokens and seconds per turn
    choice       for a budget B and a difficulty d: the cell of at most B with the highest accuracy on the problems of d
                 in the first half; of equals the one that writes fewer tokens
    confirmed    accuracy of the chosen cells on the second half, minus that of plain sampling and that of the best
                 single cell, which was chosen on the first half too; intervals paired over problems

The halves are disjoint and depend only on the ids of the problems (Compute-optimal test-time scaling,
arXiv 2502.06703). The difficulty is the level that the data state, or the accuracy of the policy in an evaluation of
its own, with other seeds than the cells: bins chosen by the same answers would make every method look better on the
problems on which plain sampling had bad luck.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from models.base.errors import UserError
from models.evaluation.bootstrap import Interval, bootstrap_mean, paired_bootstrap
from models.evaluation.metrics import Values, prompt_values
from models.evaluation.records import PromptRecord

Difficulty = Literal["level", "accuracy"]
PLAIN = "plain"
"""Method of the cell without a strategy."""
BINS = (("easy", 0.5), ("medium", 0.1), ("hard", 0.0))
"""Names of the bins of the accuracy, with their lower bounds, as in the paper."""
MOST_LEVELS = 8
"""Largest number of levels that are bins of their own; higher levels form the last bin."""


@dataclass(frozen=True)
class SweepCell:
    """A method with a scorer at a budget."""

    method: str
    scorer: str = ""
    """Name of the scorer; empty: none."""
    budget: int = 1
    """Answers per turn, about."""

    @property
    def label(self) -> str:
        """Name of the cell: `best_of_n 8 by reward_model`."""
        if self.method == PLAIN:
            return PLAIN
        return f"{self.method} {self.budget}" + (f" by {self.scorer}" if self.scorer else "")

    @property
    def series(self) -> str:
        """Name of the cells that differ from it only in the budget."""
        return self.method + (f" by {self.scorer}" if self.scorer else "")


@dataclass(frozen=True)
class CellResult:
    """A measured cell."""

    cell: SweepCell
    accuracy: Values
    """Share of right answers of each problem, [problems]."""
    tokens: float
    """Tokens that the policy wrote, per turn."""
    scored: float
    """Tokens that the scorer read, per turn."""
    seconds: float
    """Wall time per turn, seconds."""


@dataclass(frozen=True)
class SweepChoice:
    """The cells that are chosen for a budget, and their accuracy on the problems of the second half."""

    budget: int
    cells: Mapping[str, SweepCell]
    """Difficulty -> cell."""
    single: SweepCell
    """The best cell for all difficulties together."""
    accuracy: Interval
    """Accuracy of the chosen cells."""
    over_plain: Interval
    """Accuracy of the chosen cells minus that of plain sampling."""
    over_single: Interval
    """Accuracy of the chosen cells minus that of the best single cell."""
    tokens: float
    """Tokens that the policy wrote, per turn, weighted by the numbers of problems."""


def shows_gain(gain: Interval) -> bool:
    """Return whether the interval of a gain is above zero."""
    return gain.low > 0.0


def gain_text(gain: Interval) -> str:
    """Return a gain with its interval in percentage points, or the statement that none is shown, with the interval."""
    shown = gain.scaled(100)
    points = f"{shown.estimate:+.1f} [{shown.low:+.1f}, {shown.high:+.1f}]"
    return points if shows_gain(gain) else f"no gain shown: {points}"


def first_half(ids: Sequence[str]) -> NDArray[np.bool_]:
    """Return whether each problem belongs to the first half, [problems]: those with the smaller hashes of their ids."""
    order = sorted(range(len(ids)), key=lambda place: hashlib.sha256(f"sweep {ids[place]}".encode()).digest())
    first = np.zeros(len(ids), dtype=np.bool_)
    first[order[: len(ids) // 2]] = True
    return first


def difficulties(records: Sequence[PromptRecord], by: Difficulty) -> list[str]:
    """Return the difficulty of each problem, [problems].

    Args:
        records: records of the policy's own answers, drawn with other seeds than those of the cells.
        by: level: the level that the data state; accuracy: the bins of BINS.

    Raises:
        UserError: the data state no levels.
    """
    if by == "level":
        if not any(record.level for record in records):
            raise UserError("sweep.difficulty: these problems have no levels; set sweep.difficulty=accuracy")
        levels = sorted({record.level for record in records})
        last = levels[min(len(levels), MOST_LEVELS) - 1]
        capped = len(levels) > MOST_LEVELS
        return [
            f"level {last} and above" if capped and record.level >= last else f"level {record.level}"
            for record in records
        ]
    accuracy = prompt_values(records, "sampled_accuracy")
    return [next(name for name, least in BINS if value >= least) for value in accuracy]


def in_order(bins: Sequence[str]) -> list[str]:
    """Return the distinct difficulties from easy to hard."""
    names = [name for name, _ in BINS]
    return sorted(set(bins), key=lambda bin: (names.index(bin), 0) if bin in names else (0, int(bin.split()[1])))


def choose(results: Sequence[CellResult], bins: Sequence[str], ids: Sequence[str], budget: int) -> SweepChoice:
    """Choose the cells for a budget on the first half of the problems, and measure them on the second half.

    Args:
        results: measured cells, with that of plain sampling among them.
        bins: difficulty of each problem, [problems].
        ids: ids of the problems, [problems].
        budget: largest budget of a cell that may be chosen.

    Raises:
        UserError: a half has no problems.
    """
    plain = next(result for result in results if result.cell.method == PLAIN)
    admitted = [result for result in results if result.cell.budget <= budget]
    first, bin_of = first_half(ids), np.array(bins)
    if not first.any():
        raise UserError(f"a sweep needs at least 2 problems, and there is {len(ids)}; raise evaluation.problems")
    single = _best(admitted, first)
    chosen = {}
    for bin in in_order(bins):
        selecting = first & (bin_of == bin)
        chosen[bin] = _best(admitted, selecting) if selecting.any() else single
    second = np.flatnonzero(~first)
    accuracy = np.array([chosen[bins[place]].accuracy[place] for place in second])
    return SweepChoice(
        budget,
        {bin: result.cell for bin, result in chosen.items()},
        single.cell,
        bootstrap_mean(accuracy),
        paired_bootstrap(accuracy, plain.accuracy[second]),
        paired_bootstrap(accuracy, single.accuracy[second]),
        float(np.mean([chosen[bins[place]].tokens for place in second])),
    )


def _best(results: Sequence[CellResult], where: NDArray[np.bool_]) -> CellResult:
    """Return the result of highest accuracy on the problems `where`, [problems]; of equals the one of fewer tokens."""
    return max(results, key=lambda result: (round(float(result.accuracy[where].mean()), 12), -result.tokens))
