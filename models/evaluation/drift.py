"""Whether two samples come from one distribution: how far apart they are, and how sure that is.

How far is the population stability index of their shares p and q in the same bins:

    PSI = sum over bins of (p - q) ln(p / q)

It is zero where the shares are equal, positive elsewhere, and the same either way round. By custom below 0.1 is no
shift, 0.25 and above a large one (Siddiqi 2006). Bins of numbers are cut at the older sample's quantiles; a value that
is as frequent as a bin has one of its own, and so has what lies beyond all of the older sample on either side. A bin
that is empty on one side counts as half an observation there, so the index is finite and grows with the size of the
samples: that a value never occurs is known the better the more were seen.

How sure is a two-sample test: of Kolmogorov and Smirnov for numbers, Pearson's chi-squared for kinds. Small samples
have a large index by chance, large ones a small p-value by a trifle: drift is said where both agree. Of several
features that are looked at together, p-values are corrected by Holm's method, so that the probability that any of them
is found to differ where none does is `level` at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from models.bounds import Positive
from models.errors import UserError
from models.evaluation.samples import Kinds, Numbers, Sample

Values = NDArray[np.float64]
Counts = NDArray[np.float64]
State = Literal["stable", "shifted", "drifted"]

LEAST = 0.5
"""Observations that an empty bin counts as where the other sample's is not empty."""
EXACT = 100
"""Values of the smaller sample up to which the distribution of the Kolmogorov-Smirnov statistic is exact."""


@dataclass(frozen=True, kw_only=True)
class DriftSettings:
    """What the nightly evaluation of a champion tells people of. Stands under `drift:`."""

    confidence: Annotated[float, Field(ge=0.5, lt=1)] = 0.99
    """Of the interval of the change of `gate.metric` since the champion was judged; worse: all of it is below 0."""
    rows: Positive = 20_000
    """Problems of a split, evenly spaced over it, whose prompts and answers are summarised."""
    bins: Annotated[int, Field(ge=2, le=100)] = 10
    """Bins of the population stability index, each of which holds an equal share of the older sample."""
    shifted: Annotated[float, Field(gt=0, le=100)] = 0.1
    """Index from which a feature is marked on the page."""
    drifted: Annotated[float, Field(gt=0, le=100)] = 0.25
    """Index from which people are told."""
    level: Annotated[float, Field(gt=0, lt=1)] = 0.01
    """Probability of marking any feature where none changed, whatever its index."""

    def __post_init__(self) -> None:
        if self.shifted > self.drifted:
            raise UserError(f"drift.shifted: {self.shifted} is above drift.drifted, {self.drifted}")


@dataclass(frozen=True)
class Drift:
    """A feature in two samples."""

    name: str
    before: Sample
    after: Sample
    index: float
    """Population stability index."""
    statistic: float
    """Largest distance of the two distribution functions, 0 to 1; of kinds, chi-squared."""
    p_value: float
    """Corrected for all features that were compared together."""
    state: State
    bins: tuple[str, ...]
    """What each bin that is not empty on both sides holds, in words."""
    shares: tuple[tuple[float, ...], tuple[float, ...]]
    """Share of each bin in the older and in the newer sample, [bins] each."""


def drifts(
    before: Mapping[str, Sample], after: Mapping[str, Sample], settings: DriftSettings | None = None
) -> list[Drift]:
    """Every feature that both sides have, in the older one's order; a sample that is empty is none.

    Raises:
        UserError: a feature is of numbers on one side and of kinds on the other.
    """
    settings = settings or DriftSettings()
    names = [name for name in before if name in after and before[name].size and after[name].size]
    tests = [two_sample_test(before[name], after[name]) for name in names]
    corrected = holm([p_value for _, p_value in tests])
    made = []
    for name, (statistic, _), p_value in zip(names, tests, corrected, strict=True):
        bins, *counts = binned(before[name], after[name], settings.bins)
        filled = np.flatnonzero(counts[0] + counts[1])
        old, new = (tuple((of_sample[filled] / of_sample.sum()).tolist()) for of_sample in counts)
        index = stability_index(*counts)
        state: State = "stable"
        if p_value <= settings.level and index >= settings.shifted:
            state = "drifted" if index >= settings.drifted else "shifted"
        labels = tuple(bins[place] for place in filled)
        made.append(Drift(name, before[name], after[name], index, statistic, p_value, state, labels, (old, new)))
    return made


def stability_index(before: ArrayLike, after: ArrayLike) -> float:
    """Population stability index of two samples by their counts in the same bins, [bins] each.

    Raises:
        UserError: the bins are not the same, or a sample is empty.
    """
    old, new = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    if old.shape != new.shape or not (old.sum() > 0 and new.sum() > 0):
        raise UserError(f"stability index: counts {old.shape} against {new.shape}, of one sample each")
    filled = (old > 0) | (new > 0)
    p = np.maximum(old[filled], LEAST) / old.sum()
    q = np.maximum(new[filled], LEAST) / new.sum()
    return float(((p - q) * np.log(p / q)).sum())


def bin_edges(reference: Numbers, bins: int) -> Values:
    """Upper edges of the bins, rising, [at least 2]: a number lies in the first bin whose edge is not below it, in one
    more behind the last where all are."""
    values, counts = np.array(reference.values), np.array(reference.counts)
    reached = np.cumsum(counts) / counts.sum()
    at = np.searchsorted(reached, np.arange(1, bins) / bins - 1e-12)
    frequent = values[counts >= counts.sum() / bins]
    edges = [values[at], frequent, np.nextafter(frequent, -np.inf), np.nextafter(values[:1], -np.inf), values[-1:]]
    return np.unique(np.concatenate(edges))


def binned(before: Sample, after: Sample, bins: int = 10) -> tuple[list[str], Counts, Counts]:
    """Labels of the bins that the older sample cuts, and the counts of both in them, [bins].

    Raises:
        UserError: one is of numbers and the other of kinds.
    """
    if isinstance(before, Numbers) and isinstance(after, Numbers):
        edges = bin_edges(before, bins)
        return _labels(edges), _counted(before, edges), _counted(after, edges)
    if isinstance(before, Kinds) and isinstance(after, Kinds):
        kinds = sorted({*before.counts, *after.counts})
        old, new = (np.array([float(side.counts.get(kind, 0)) for kind in kinds]) for side in (before, after))
        return kinds, old, new
    raise UserError("drift: numbers cannot be held against kinds")


def two_sample_test(before: Sample, after: Sample) -> tuple[float, float]:
    """Statistic and p-value of "both samples are of one distribution".

    Raises:
        UserError: one is of numbers and the other of kinds, or one is empty.
    """
    from scipy import stats

    if not before.size or not after.size:
        raise UserError("drift: an empty sample cannot be compared")
    if isinstance(before, Numbers) and isinstance(after, Numbers):
        method = "exact" if min(before.size, after.size) <= EXACT else "asymp"
        tested = stats.ks_2samp(before.each, after.each, method=method)
        return float(tested.statistic), float(tested.pvalue)
    _, *counts = binned(before, after)
    table = np.array(counts)
    if table.shape[1] < 2:
        return 0.0, 1.0
    tested = stats.chi2_contingency(table, correction=False)
    return float(tested.statistic), float(tested.pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: each p-value as it counts beside the others, at most 1, in the order given (Holm 1979)."""
    corrected = [1.0] * len(p_values)
    least = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = least
    return corrected


def _counted(sample: Numbers, edges: Values) -> Counts:
    counts = np.zeros(edges.size + 1)
    np.add.at(counts, np.searchsorted(edges, sample.values), sample.counts)
    return counts


def _labels(edges: Values) -> list[str]:
    labels = [f"< {np.nextafter(edges[0], np.inf):.4g}", *(f"≤ {edge:.4g}" for edge in edges[1:])]
    for place in np.flatnonzero(np.nextafter(edges[:-1], np.inf) == edges[1:]):
        labels[place : place + 2] = [f"< {edges[place + 1]:.4g}", f"{edges[place + 1]:.4g}"]
    return [*labels, f"> {edges[-1]:.4g}"]
