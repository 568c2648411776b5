"""Detection of a collapsed policy from the rounds' metrics, and the settings of a recipe's `alarm:`.

The detection is a pure function of the metrics. There are six signs, each of which must be present in every one of the
last `patience` rounds. Most compare with the first rounds of the run:

    reward     below its start by more than `drop` standard deviations of a completion's reward at the start
    loss       most of what was gained since a start too low to fall below is lost again; at such a start completions
               differed less than half as much in reward as in the best `patience` rounds in a row
    length     more than `cut_share` of the completions were cut at their limit, and by half of that more than in the
               first or the best `patience` rounds
    disorder   entropy above `entropy_high` nats a token, and above `entropy_rise` times its start
    certainty  entropy below `entropy_low` nats a token while the reward is not higher than at the start
    parting    `truth` more than `margin` below its best mean, of the first rounds or of `patience` rounds in a row,
               while `proxy`, the reward that replaces it, is above its mean in those rounds: the policy games the
               proxy (Gao et al. 2023)

A completion's standard deviation is the unit because rewards have none of their own: for a verifier it is
sqrt(p (1 - p)), so with drop 0.25 a share of 0.18 right alarms below 0.08 and one of 0.5 below 0.38. The mean of a
round of n completions deviates by about 1 / sqrt(n) of it, far from 0.25 for five rounds in a row.

A metric that is missing in a round (an entropy, if nothing was learned) gives no sign. The history that the alarm needs
is part of every checkpoint, so a run that resumes from one stops in the same round as an uninterrupted run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, TypeAdapter

from models.base.bounds import Positive

SPREAD, CUT, ENTROPY = "reward/spread", "rollouts/cut_share", "policy/entropy"
BAD_START = 0.5
"""A run has a bad start if its rewards spread less at the start than this share of their spread in the best rounds."""
KEPT = 0.25
"""Smallest share of the gain in reward that must remain; with less, the gain counts as lost."""


@dataclass(frozen=True, kw_only=True)
class AlarmSettings:
    """Conditions under which a run counts as collapsed. Set under `alarm:`; `alarm: null` leaves it out."""

    action: Literal["stop", "warn"] = "stop"
    """stop: the run ends and keeps the best policy of a checkpoint. warn: the run continues with a warning."""
    patience: Positive = 5
    """Number of consecutive rounds that must show a sign of collapse."""
    opening: Positive = 3
    """Number of first rounds of a run, whose means are its start."""
    by: str = "total"
    """The reward that is watched: total, or the label of one of the recipe's rewards."""
    drop: PositiveFloat = 0.25
    """How far the reward may fall below its start, in standard deviations of a completion's reward at the start."""
    cut_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Largest share of completions that are cut at their limit."""
    entropy_low: NonNegativeFloat = 0.001
    """Least entropy of the policy, nats a token, while the reward has not risen."""
    entropy_high: PositiveFloat = 1.0
    """Largest entropy of the policy, nats a token, if that is also more than `entropy_rise` times its start."""
    entropy_rise: Annotated[float, Field(gt=1)] = 5.0
    """Smallest ratio of the entropy to its start at which a high entropy counts as disorder."""
    proxy: str | None = None
    """Label of the reward that approximates the truth, such as a reward model; null: not checked."""
    truth: str | None = None
    """Label of the true reward, whose weight may be zero. If set, the best policy is the best by this reward."""
    margin: PositiveFloat = 0.1
    """How far the truth may fall below its best while the proxy rises, in the truth's unit: a share for a verifier."""

    @property
    def reward(self) -> str:
        """Name of the metric of the watched reward."""
        return f"reward/{self.by}"

    @property
    def watched(self) -> tuple[str, ...]:
        """Names of the metrics that are read."""
        both = [f"reward/{label}" for label in (self.proxy, self.truth) if label is not None]
        return (self.reward, SPREAD, CUT, ENTROPY, *both)

    @property
    def worth(self) -> str:
        """Name of the metric by which the best policy is chosen."""
        return self.reward if self.truth is None else f"reward/{self.truth}"


@dataclass(frozen=True)
class Collapse:
    """A collapse of the policy."""

    round_number: int
    """Number of the round after which the collapse was detected, from 1."""
    signs: tuple[str, ...]
    """The signs that were present, in words."""
    kept: int | None = None
    """Number of rounds after which the kept policy was stored; 0: the initial policy. None: the run continued."""

    def __str__(self) -> str:
        kept = "" if self.kept is None else f"; kept the policy after round {self.kept}"
        return f"the policy collapsed by round {self.round_number}: {', '.join(self.signs)}{kept}"


Metrics = Mapping[str, float]
"""Metrics of a round, by name."""


@dataclass(frozen=True)
class History:
    """The alarm's history of the rounds so far."""

    rounds: int = 0
    opening: tuple[Metrics, ...] = ()
    """Watched metrics of the first rounds."""
    last: tuple[Metrics, ...] = ()
    """Watched metrics of the last `patience` rounds, without those of `opening`."""
    best_round: int = 0
    """Number of rounds after which the best policy so far was stored; 0: the initial policy."""
    best: float | None = None
    """Worth of the best policy; None as long as this is the initial policy."""
    collapse: Collapse | None = None
    """The first collapse of the run."""
    peak: Metrics = field(default_factory=dict)
    """Means of proxy and truth in the consecutive rounds with the best truth, the first rounds included; else empty."""
    top: Metrics = field(default_factory=dict)
    """Means of the `patience` consecutive rounds with the highest watched reward: that reward, and its spread."""
    least_cut: float | None = None
    """Smallest mean share of cut completions in `patience` consecutive rounds."""

    def after(self, metrics: Metrics, settings: AlarmSettings) -> History:
        """Return the history with one more round, checked for collapse."""
        seen = {name: metrics[name] for name in settings.watched if name in metrics}
        if self.rounds < settings.opening:
            begun = replace(self, rounds=self.rounds + 1, opening=(*self.opening, seen))
            return replace(begun, peak=_means(begun.opening, settings)) if begun.rounds == settings.opening else begun
        longer = replace(self, rounds=self.rounds + 1, last=(*self.last, seen)[-settings.patience :])
        longer = replace(
            longer, peak=_best_yet(longer, settings), top=_top(longer, settings), least_cut=_least(longer, settings)
        )
        return longer if self.collapse is not None else replace(longer, collapse=judge(longer, settings))

    def worth(self, settings: AlarmSettings) -> float:
        """Return the value of the current policy by which the best one is chosen.

        It is the mean over the last rounds of the truth, else of the watched reward; or the value in the last of them
        if that is smaller, because a falling policy is worse than its mean. -inf if no round has the metric.
        """
        values = _values(self.last or self.opening, settings.worth)
        return min(_mean_of(values), values[-1]) if values else -math.inf

    def improved(self, settings: AlarmSettings) -> bool:
        """Return whether the current policy is worth more than the best one stored so far."""
        kept = _or_least(_mean(self.opening, settings.worth)) if self.best is None else self.best
        return self.worth(settings) > kept

    def keeping(self, settings: AlarmSettings) -> History:
        """Return the history with the current policy recorded as the best one stored."""
        return replace(self, best_round=self.rounds, best=self.worth(settings))


FILE = "alarm.json"
"""Name of the history's file in a checkpoint."""
_HISTORY: TypeAdapter[History] = TypeAdapter(History)


def written(history: History) -> bytes:
    """Serialise the history as JSON, which restores every number to the last bit."""
    return _HISTORY.dump_json(history)


def read(content: bytes) -> History:
    """Read a history from the content that `written` returned."""
    return _HISTORY.validate_json(content)


def judge(history: History, settings: AlarmSettings) -> Collapse | None:
    """Return the collapse that the rounds so far show; None if there is none, or too few rounds so far."""
    if len(history.last) < settings.patience:
        return None
    start = {name: _mean(history.opening, name) for name in settings.watched}
    signs = [sign(history.last, start, settings) for sign in (_fallen, _disorder, _certainty)]
    signs.insert(1, _cut(history.last, start[CUT], history.least_cut, settings))
    signs.append(_parted(history.last, history.peak, settings))
    signs.append(_lost(history.last, start, history.top, settings))
    seen = tuple(sign for sign in signs if sign)
    return Collapse(history.rounds, seen) if seen else None


def _or_least(value: float) -> float:
    return -math.inf if math.isnan(value) else value


def _fallen(last: Sequence[Metrics], start: Metrics, settings: AlarmSettings) -> str:
    least = start[settings.reward] - settings.drop * start[SPREAD]
    below = _all(last, settings.reward, lambda value: value < least)
    if not below or not start[SPREAD] > 0:
        return ""
    now = _mean(last, settings.reward)
    return f"{settings.reward} {now:.3g} where it began at {start[settings.reward]:.3g}"


def _lost(last: Sequence[Metrics], start: Metrics, top: Metrics, settings: AlarmSettings) -> str:
    """Describe the loss of the gain since a bad start; empty: no sign. From a good start, `_fallen` is the sign."""
    if settings.reward not in top or not start[SPREAD] < BAD_START * top[SPREAD]:
        return ""
    gain = top[settings.reward] - start[settings.reward]
    least = start[settings.reward] + KEPT * gain
    if not gain > settings.drop * top[SPREAD] or not _all(last, settings.reward, lambda value: value < least):
        return ""
    now = _mean(last, settings.reward)
    risen = f"from {start[settings.reward]:.3g} to {top[settings.reward]:.3g}"
    return f"{settings.reward} {now:.3g} where it had risen {risen}"


def _cut(last: Sequence[Metrics], start: float, least: float | None, settings: AlarmSettings) -> str:
    lowest = start if least is None else min(start, least)
    most = max(settings.cut_share, lowest + settings.cut_share / 2)
    if math.isnan(start) or not _all(last, CUT, lambda value: value > most):
        return ""
    seen = f"where it began at {start:.0%}" if lowest == start else f"where {lowest:.0%} were"
    return f"{_mean(last, CUT):.0%} of the completions cut at their limit {seen}"


def _disorder(last: Sequence[Metrics], start: Metrics, settings: AlarmSettings) -> str:
    most = max(settings.entropy_high, settings.entropy_rise * start[ENTROPY])
    if not _all(last, ENTROPY, lambda value: value > most):
        return ""
    return f"entropy {_mean(last, ENTROPY):.3g} nats a token where it began at {start[ENTROPY]:.3g}"


def _certainty(last: Sequence[Metrics], start: Metrics, settings: AlarmSettings) -> str:
    certain = _all(last, ENTROPY, lambda value: value < settings.entropy_low)
    if not certain or not start[ENTROPY] >= settings.entropy_low:
        return ""
    if not _mean(last, settings.reward) <= start[settings.reward]:
        return ""
    return f"entropy {_mean(last, ENTROPY):.3g} nats a token and a reward no higher than at the start"


def _top(history: History, settings: AlarmSettings) -> Metrics:
    """Return watched reward and spread in the consecutive rounds in which the reward was highest."""
    if len(history.last) < settings.patience:
        return history.top
    now = {name: _mean(history.last, name) for name in (settings.reward, SPREAD)}
    if any(math.isnan(value) for value in now.values()):
        return history.top
    return now if now[settings.reward] > history.top.get(settings.reward, -math.inf) else history.top


def _least(history: History, settings: AlarmSettings) -> float | None:
    """Return the smallest mean share of cut completions in consecutive rounds."""
    now = _mean(history.last, CUT)
    if len(history.last) < settings.patience or math.isnan(now):
        return history.least_cut
    return now if history.least_cut is None else min(history.least_cut, now)


def _best_yet(history: History, settings: AlarmSettings) -> Metrics:
    """Return the means of proxy and truth in the consecutive rounds in which the truth was best."""
    if settings.truth is None or len(history.last) < settings.patience:
        return history.peak
    now = _means(history.last, settings)
    best = history.peak.get(settings.worth, -math.inf)
    return now if now and now[settings.worth] > best else history.peak


def _means(rounds: Sequence[Metrics], settings: AlarmSettings) -> Metrics:
    """Return the means of proxy and truth in `rounds`; empty if they are not watched or either is missing."""
    if settings.truth is None:
        return {}
    means = {name: _mean(rounds, name) for name in (settings.worth, f"reward/{settings.proxy}")}
    return {} if any(math.isnan(value) for value in means.values()) else means


def _parted(last: Sequence[Metrics], peak: Metrics, settings: AlarmSettings) -> str:
    proxy, truth = f"reward/{settings.proxy}", settings.worth
    if settings.truth is None or not {proxy, truth} <= set(peak):
        return ""
    fell = _all(last, truth, lambda value: value < peak[truth] - settings.margin)
    if not fell or not _all(last, proxy, lambda value: value > peak[proxy]):
        return ""
    risen, fallen = (f"from {peak[name]:.3g} to {_mean(last, name):.3g}" for name in (proxy, truth))
    return f"{proxy} rose {risen} while {truth} fell {fallen}"


def _all(rounds: Sequence[Metrics], name: str, holds: Callable[[float], bool]) -> bool:
    return all(name in metrics and holds(metrics[name]) for metrics in rounds)


def _mean(rounds: Sequence[Metrics], name: str) -> float:
    return _mean_of(_values(rounds, name))


def _mean_of(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _values(rounds: Sequence[Metrics], name: str) -> list[float]:
    """Return the values of a metric in the rounds that have it."""
    return [metrics[name] for metrics in rounds if name in metrics]
