"""The judgement of a candidate against a champion: the gate's evidence, guards and power, on any metric."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from models.base.errors import UserError, listed, shortened
from models.evaluation.bootstrap import Interval, bootstrap_mean
from models.evaluation.gate.budget import Look
from models.evaluation.gate.changes import mean_change
from models.evaluation.gate.checks import GateCheck, not_finite, share_kept, without_left_out
from models.evaluation.gate.evidence import is_findable, problems_needed
from models.evaluation.gate.gate import GateSettings, Verdict, better_check, guard_checks
from models.evaluation.measured import Values
from tasks.judging.measuring import STRICT, Measurement

Decision = Literal["better", "not_shown", "refused"]
"""`refused`: a guard failed, whether or not the candidate is better."""
DIFFERENCES = (0.01, 0.02, 0.05)
"""True differences for which the number of needed problems is shown."""
LOOSE_NAMES = (("strict-match", "flexible-extract"), ("strict", "loose"), ("strict", "lenient"))
"""Words of a strict metric's name and those of its lenient partner: lm-eval's filters, IFEval's metrics, `judge`'s."""
RENEWAL = "take problems that this ledger has not counted looks at"
MOST_SHOWN = 12
"""Largest number of metrics that are shown without being named."""


@dataclass(frozen=True, kw_only=True)
class JudgeSettings:
    """Settings of a comparison."""

    metric: str = ""
    """Primary metric; "": the strict accuracy of the verifier, or the only score of the sources."""
    also: tuple[str, ...] = ()
    """Further metrics that are shown."""
    guards: Mapping[str, float] = field(default_factory=dict)
    """Metric -> largest allowed fall. The lenient partner of the primary metric is always guarded."""
    gate: GateSettings = field(default_factory=GateSettings)
    """Margins of the guards on texts, confidence, error budget and looks; its metrics and samples are not used."""


@dataclass(frozen=True)
class MetricLine:
    """A metric of both sides with intervals."""

    name: str
    champion: Interval
    candidate: Interval
    difference: Interval
    """Candidate minus champion, paired over problems."""


@dataclass(frozen=True)
class FormSplit:
    """The change of strict accuracy as the sum of a change in content and a change in form."""

    strict: str
    lenient: str
    content: Interval
    """Change of lenient accuracy: answers that are right, however they are written."""
    form: Interval
    """Change of strict minus lenient accuracy: right answers that are written as the strict metric requires."""


@dataclass(frozen=True)
class Judgement:
    """The decision on a candidate with its grounds."""

    decision: Decision
    metric: str
    verdict: Verdict
    metrics: tuple[MetricLine, ...]
    """The primary metric first."""
    form: FormSplit | None
    problems: int
    counts: tuple[int, int, int]
    """Problems on which the candidate has the higher, the same and the lower value of the primary metric."""
    needed: Mapping[float, int | None]
    """True difference -> problems with which it is found with 80 % power, at this look and spread; None: no number of
    problems suffices."""
    measured: Measurement
    settings: JudgeSettings
    ledger: str = ""
    """Where looks are counted; empty: nowhere, this is the only look."""
    verifier: str = ""


def primary_metric(measured: Measurement, settings: JudgeSettings) -> str:
    """Return the primary metric: the named one, strict accuracy, or the only one that both sides have.

    Raises:
        UserError: the sides share no metric, or several and none is named.
    """
    if settings.metric:
        return settings.metric
    shared = measured.shared
    if STRICT in shared:
        return STRICT
    for name in shared:
        if len(shared) == 2 and partner(name, shared) is not None:
            return name
    if len(shared) == 1:
        return shared[0]
    if shared:
        raise UserError(f"--metric: name the primary metric; both sides have {listed(shared)}")
    champion, candidate = measured.champion.answers, measured.candidate.answers
    raise UserError(
        f"{champion.source} and {candidate.source} share no metric ({listed(champion.score_names)} and "
        f"{listed(candidate.score_names)}); --verifier scores the texts of both"
    )


def partner(strict: str, names: Sequence[str]) -> str | None:
    """Return the lenient partner of a strict metric among others; None if there is none."""
    candidates = (strict.replace(word, loose) for word, loose in LOOSE_NAMES if word in strict)
    return next((name for name in candidates if name in names), None)


def judge(
    measured: Measurement,
    settings: JudgeSettings,
    take_look: Callable[[str], Look],
    *,
    ledger: str = "",
    verifier: str = "",
) -> Judgement:
    """Judge a candidate. Everything that can be refused is, before a look is spent.

    Args:
        measured: both sides.
        settings: metrics and margins.
        take_look: counts the look at a primary metric and returns it.
        ledger: where looks are counted, for readers.
        verifier: name of the verifier, for readers.

    Raises:
        UserError: a metric is not measured or is not a share, or a guard needs texts that a source lacks.
    """
    metric = primary_metric(measured, settings)
    lenient = partner(metric, measured.shared)
    guards = dict(settings.guards)
    if lenient is not None and settings.gate.capability_margin is not None:
        guards.setdefault(lenient, settings.gate.capability_margin)
    values = {name: _share(measured, name) for name in dict.fromkeys([metric, *settings.also, *guards])}
    gate = _text_guards(measured, settings.gate)
    reading = (gate.safety_patterns, gate.severity, measured.in_tokens)
    texts = (measured.candidate.for_guards(*reading), measured.champion.for_guards(*reading))
    look = take_look(metric)
    better, difference, detectable = better_check(metric, *values[metric], look, gate.confidence, RENEWAL)
    checks = [better, *guard_checks(*texts, gate, reward_model=False)]
    checks += [
        share_kept(name, name, *values[name], margin, gate.confidence, "the baseline")
        for name, margin in guards.items()
    ]
    if not measured.has_texts:
        checks.append(GateCheck("texts", "not_applicable", math.nan, math.nan, "a source has scores without texts"))
    new, old = values[metric]
    verdict = Verdict(not any(check.failed for check in checks), tuple(checks), difference, look, detectable)
    shown = list(dict.fromkeys([*values, *_shown(measured)]))
    return Judgement(
        _decision(verdict),
        metric,
        verdict,
        tuple(_line(name, *_pair(measured, name), gate.confidence) for name in shown),
        None if lenient is None else _split(metric, lenient, measured, gate.confidence),
        len(measured.problems),
        (int((new > old).sum()), int((new == old).sum()), int((new < old).sum())),
        _needed(new, old, look),
        measured,
        replace(settings, guards=guards, gate=gate),
        ledger,
        verifier,
    )


def compared(measured: Measurement, metric: str, verifier: str) -> str:
    """Return a text that identifies a comparison: the same answers, judged by the same metric, are one look."""
    parts = [measured.candidate.answers.digest, measured.champion.answers.digest, metric, verifier]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _decision(verdict: Verdict) -> Decision:
    better, *guards = verdict.checks
    if any(check.failed for check in guards):
        return "refused"
    return "not_shown" if better.failed else "better"


def _text_guards(measured: Measurement, gate: GateSettings) -> GateSettings:
    """Return the settings with the guards that cannot be computed from the sources off.

    Raises:
        UserError: a guard on texts was requested and a source has none.
    """
    off: dict[str, object] = {"divergence_margin": None, "reward_gap_margin": None, "capabilities": ()}
    if min(measured.champion.samples[0], measured.candidate.samples[0]) < 2:
        off["diversity_margin"] = None
    if not measured.has_texts:
        for name in ("safety_patterns", "severity", "shortness_margin", "phrases_margin"):
            if getattr(gate, name):
                raise UserError(f"--set {name}: a source has scores without texts, so this guard cannot be checked")
        off |= {"length_margin": None, "diversity_margin": None}
    return replace(gate, **off)  # type: ignore[arg-type]


def _pair(measured: Measurement, name: str) -> tuple[Values, Values]:
    return measured.candidate.values(name), measured.champion.values(name)


def _share(measured: Measurement, name: str) -> tuple[Values, Values]:
    """Return a metric of both sides, candidate first.

    Raises:
        UserError: it is not measured on a side, or a value is outside [0, 1].
    """
    for side, values in zip((measured.candidate, measured.champion), _pair(measured, name), strict=True):
        outside = np.flatnonzero((values < 0) | (values > 1))
        if outside.size:
            raise UserError(
                f"{side.answers.source}: {shortened(name, 60)} of the problem "
                f"{shortened(measured.problems[outside[0]].id, 40)!r} is {values[outside[0]]:g}, not within 0 and 1; "
                "--range LOW:HIGH maps scores to it"
            )
    return _pair(measured, name)


def _shown(measured: Measurement) -> list[str]:
    return [name for name in measured.shared if not any(np.isnan(v).any() for v in _pair(measured, name))][:MOST_SHOWN]


def _line(name: str, new: Values, old: Values, confidence: float) -> MetricLine:
    new, old = without_left_out(new, old)
    if not_finite(name, new) or not_finite(name, old):
        unknown = Interval(math.nan, math.nan, math.nan)
        return MetricLine(name, unknown, unknown, unknown)
    before, after = (bootstrap_mean(values, confidence=confidence, resamples=2000) for values in (old, new))
    return MetricLine(name, before, after, _difference(new, old, confidence))


def _difference(new: Values, old: Values, confidence: float) -> Interval:
    change = mean_change(new, old)
    two_sided = 0.5 + confidence / 2
    return Interval(change.estimate, change.bound(two_sided, -1), change.bound(two_sided, 1))


def _split(strict: str, lenient: str, measured: Measurement, confidence: float) -> FormSplit:
    strict_values, lenient_values = _pair(measured, strict), _pair(measured, lenient)
    gaps = [of_strict - of_lenient for of_strict, of_lenient in zip(strict_values, lenient_values, strict=True)]
    return FormSplit(
        strict, lenient, _difference(*lenient_values, confidence), _difference(gaps[0], gaps[1], confidence)
    )


def _needed(new: Values, old: Values, look: Look) -> dict[float, int | None]:
    spread = float(np.nanstd(new - old, ddof=1)) if new.size > 1 else 0.0
    if not (look.alpha > 0 and spread > 0):
        return {}
    return {
        difference: problems_needed(spread, difference, look.alpha) if is_findable(spread, difference) else None
        for difference in DIFFERENCES
    }
