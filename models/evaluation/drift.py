"""Tests whether two samples come from one distribution: the size of the difference, and its significance.

The size is the population stability index of their shares p and q in the same bins:

    PSI = sum over bins of (p - q) ln(p / q)

It is zero where the shares are equal, positive elsewhere, and symmetric. By custom a value below 0.1 means no shift,
and 0.25 and above a large one (Siddiqi 2006). Bins of numbers are cut at the older sample's quantiles. A value that is
as frequent as a bin gets its own bin, and so do the values beyond all of the older sample on either side. A bin that is
empty on one side counts as half an observation there. The index is therefore finite and grows with the size of the
samples: the more observations, the surer it is that a value never occurs.

The significance is that of a two-sample test: Kolmogorov-Smirnov for numbers, Pearson's chi-squared for kinds. Small
samples can have a large index by chance, and large samples a small p-value for a trivial difference, so drift is
reported only if both agree. If several features are tested together, p-values are corrected by Holm's method, so that
the probability that any of them is found to differ where none does is `level` at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from models.base.bounds import Positive
from models.base.errors import UserError
from models.evaluation.samples import Kinds, Numbers, Sample

Values = NDArray[np.float64]
Counts = NDArray[np.float64]
State = Literal["stable", "shifted", "drifted"]

LEAST = 0.5
"""Observations that an empty bin counts as, if the other sample's bin is not empty."""
EXACT = 100
"""Size of the smaller sample up to which the distribution of the Kolmogorov-Smirnov statistic is exact."""


@dataclass(frozen=True, kw_only=True)
class DriftSettings:
    """Settings of the drift report of a champion's nightly evaluation, under `drift:`."""

    confidence: Annotated[float, Field(ge=0.5, lt=1)] = 0.99
    """Confidence of the interval of the change of `gate.metric` since the champion was judged. The metric is reported
    as worse if the whole interval is below 0."""
    rows: Positive = 20_000
    """Problems of a split, evenly spaced over it, whose prompts and answers are summarised."""
    bins: Annotated[int, Field(ge=2, le=100)] = 10
    """Bins of the population stability index, each of which holds an equal share of the older sample."""
    shifted: Annotated[float, Field(gt=0, le=100)] = 0.1
    """Index from which a feature is marked on the page."""
    drifted: Annotated[float, Field(gt=0, le=100)] = 0.25
    """Index from which a notification is sent."""
    level: Annotated[float, Field(gt=0, lt=1)] = 0.01
    """Probability of marking any feature if none changed, whatever its index."""

    def __post_init__(self) -> None:
        if self.shifted > self.drifted:
            raise UserError(f"drift.shifted: {self.shifted} is above drift.drifted, {self.drifted}")


@dataclass(frozen=True)
class Drift:
    """Comparison of one feature in two samples."""

    name: str
    before: Sample
    after: Sample
    index: float
    """Population stability index."""
    statistic: float
    """Largest distance of the two distribution functions, 0 to 1; for kinds, chi-squared."""
    p_value: float
    """Corrected for all features that were compared together."""
    state: State
    bins: tuple[str, ...]
    """Label of each bin that holds an observation of either sample."""
    shares: tuple[tuple[float, ...], tuple[float, ...]]
    """Share of each bin in the older and in the newer sample, [bins] each."""


def drifts(
    before: Mapping[str, Sample], after: Mapping[str, Sample], settings: DriftSettings | None = None
) -> list[Drift]:
    """Compare every feature that both sides have, in the order of the older; empty samples are skipped.

    Raises:
        UserError: a feature has numbers on one side and kinds on the other.
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
    """Compute the population stability index of two samples by their counts in the same bins, [bins] each.

    Raises:
        UserError: the bins differ, or a sample is empty.
    """
    old, new = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    if old.shape != new.shape or not (old.sum() > 0 and new.sum() > 0):
        raise UserError(f"stability index: counts {old.shape} against {new.shape}, of one sample each")
    filled = (old > 0) | (new > 0)
    p = np.maximum(old[filled], LEAST) / old.sum()
    q = np.maximum(new[filled], LEAST) / new.sum()
    return float(((p - q) * np.log(p / q)).sum())


def bin_edges(reference: Numbers, bins: int) -> Values:
    """Return the upper edges of the bins, rising, [at least 2].

    A number is in the first bin whose edge is not below it, or in an additional last bin if all edges are below it.
    """
    values, counts = np.array(reference.values), np.array(reference.counts)
    reached = np.cumsum(counts) / counts.sum()
    at = np.searchsorted(reached, np.arange(1, bins) / bins - 1e-12)
    frequent = values[counts >= counts.sum() / bins]
    edges = [values[at], frequent, np.nextafter(frequent, -np.inf), np.nextafter(values[:1], -np.inf), values[-1:]]
    return np.unique(np.concatenate(edges))


def binned(before: Sample, after: Sample, bins: int = 10) -> tuple[list[str], Counts, Counts]:
    """Return the labels of the older sample's bins, and the counts of both samples in them, [bins].

    Raises:
        UserError: one sample has numbers and the other kinds.
    """
    if isinstance(before, Numbers) and isinstance(after, Numbers):
        edges = bin_edges(before, bins)
        return _labels(edges), _counted(before, edges), _counted(after, edges)
    if isinstance(before, Kinds) and isinstance(after, Kinds):
        kinds = sorted({*before.counts, *after.counts})
        old, new = (np.array([float(side.counts.get(kind, 0)) for kind in kinds]) for side in (before, after))
        return kinds, old, new
    raise UserError("drift: numbers cannot be compared with kinds")


def two_sample_test(before: Sample, after: Sample) -> tuple[float, float]:
    """Return the statistic and p-value of "both samples come from one distribution".

    Raises:
        UserError: one sample has numbers and the other kinds, or one is empty.
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
    """Apply Holm's correction for multiple tests; p-values are at most 1 and in the order given (Holm 1979)."""
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
