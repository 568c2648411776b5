"""The gate: a candidate replaces a baseline only if it is shown to be better and nothing else broke.

    better:  the evidence that the metric rose reaches the level of this look's share of the error budget
    guards:  each shows by an interval that a number is not worse past its margin (non-inferiority), against the
             champion and against an anchor that stays, so that small losses do not add up over many promotions

Every check is computed and reported, also after one has failed, and ends in one of three states. A missing or
non-finite value fails. "Not applicable" is reserved for a value that cannot be defined, for a reason that the check
gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from models.answers.severity import severity_table
from models.base.errors import UserError
from models.datasets.settings import DataName
from models.evaluation.bootstrap import Interval
from models.evaluation.copied import CopiedSettings
from models.evaluation.gate.budget import Look, next_look
from models.evaluation.gate.changes import (
    Change,
    divergence_change,
    gap_change,
    mean_change,
    ratio,
    share_change,
    too_few,
)
from models.evaluation.gate.checks import GateCheck, Side, bounded, not_finite, share_kept, without_left_out
from models.evaluation.gate.evidence import detectable_difference, log_e_value
from models.evaluation.gate.held_out import HeldOutAnswers, HeldOutSettings, held_out_checks
from models.evaluation.hallucination import HallucinationSettings
from models.evaluation.measured import GateMeasurements, Values, measure
from models.evaluation.metrics import UNBOUNDED, compiled_patterns, defined_on, known_metric, samples_needed
from models.evaluation.records import PromptRecord, aligned

NEW_SPLIT = "take a new gate split (arithmetic.gate_seed in params.yaml, or data.gate_rotation)"
"""How a recipe's user gets a new error budget."""


@dataclass(frozen=True, kw_only=True)
class GateSettings:
    """Conditions that a candidate must meet, under `gate:`. A guard with a null margin is off."""

    __pydantic_config__ = {"extra": "forbid", "allow_inf_nan": False}  # noqa: RUF012 - not a field

    metric: str = "sampled_accuracy"
    """Any per-prompt metric that is a share: sampled_accuracy, greedy_accuracy, pass_at_4, level_3_accuracy..."""
    problems: int = 460
    """Problems of the gate split, evenly spaced over it; the same for every model."""
    samples: int = 16
    """Completions per problem, drawn as in the evaluation."""
    error_budget: float = 0.05
    """Probability of any false promotion over all looks at one gate split, at equal quality."""
    looks: int = 365
    """Looks that the budget is divided over; after them a new gate split is needed."""
    confidence: float = 0.95
    """Confidence of the guards' bounds, one-sided, and of the interval that is shown."""
    safety_patterns: tuple[str, ...] = ()
    """Regular expressions; a sample that matches one of them is flagged."""
    safety_margin: float | None = 0.02
    """Largest allowed rise of the share of flagged samples."""
    severity: dict[str, float] = field(default_factory=dict)
    """Regular expression -> severity of a turn that matches it; the largest counts if several match. The severity of an
    episode is that of all its turns together (`models.answers.severity`). Empty: no guard."""
    severity_margin: float | None = 0.05
    """Largest allowed rise of the mean severity of a sample."""
    copied: CopiedSettings | None = None
    """Guard of the share of samples that are copied from training rows; null: off."""
    hallucination: HallucinationSettings | None = None
    """Guard of the claims that the documents of a prompt do not support; null: off."""
    length_margin: float | None = 0.25
    """Largest allowed growth of the samples, as a share of the baseline's mean length."""
    shortness_margin: float | None = None
    """Largest allowed shrinkage of the samples, as a share of the baseline's mean length."""
    phrases_margin: float | None = None
    """Largest allowed relative loss of the share of three-word phrases that occur once in all of a policy's samples."""
    fluency_margin: float | None = None
    """Largest allowed rise of the samples' surprise under the starting policy over the baseline's, nats per token."""
    diversity_margin: float | None = 0.75
    """Largest part of the distinct share that may be lost. A better policy repeats right answers: leave room."""
    capabilities: tuple[str, ...] = ("greedy_accuracy", "easiest_accuracy")
    """Per-prompt metrics that must be kept."""
    capability_margin: float | None = 0.07
    """Largest allowed fall of each of them."""
    divergence_margin: float | None = 0.2
    """Largest allowed rise of the reward model's 1 - AUC against the truth."""
    reward_gap_margin: float | None = 1.0
    """Largest allowed rise of the reward beyond the truth, in standard deviations."""
    held_out: dict[DataName, HeldOutSettings] = field(default_factory=dict)
    """Name -> a separate held-out set, on which every candidate must keep a metric."""

    def __post_init__(self) -> None:
        for name in (self.metric, *self.capabilities):
            if not known_metric(name):
                raise UserError(f"gate: unknown metric {name!r}")
            if name in UNBOUNDED:
                raise UserError(f"gate: {name} is not a share between 0 and 1, which metric and capabilities must be")
        for name in ("problems", "samples", "looks"):
            if getattr(self, name) < 1:
                raise UserError(f"gate.{name}: {getattr(self, name)} must be 1 or more")
        if self.samples_needed > self.samples:
            raise UserError(f"gate.samples is {self.samples}, but the gate's metrics need {self.samples_needed}")
        if not 0.5 <= self.confidence < 1:
            raise UserError(f"gate.confidence: {self.confidence} must lie in [0.5, 1)")
        if not 0 < self.error_budget < 1:
            raise UserError(f"gate.error_budget: {self.error_budget} must lie between 0 and 1")
        margins = {name: value for name, value in vars(self).items() if name.endswith("_margin") and value is not None}
        for name, margin in margins.items():
            if not (math.isfinite(margin) and margin >= 0):
                raise UserError(f"gate.{name}: {margin} must be 0 or more")
        compiled_patterns(self.safety_patterns)
        severity_table(self.severity, "gate.severity")

    @property
    def samples_needed(self) -> int:
        """Samples per prompt that the gate's metrics need."""
        return max(samples_needed(name) for name in (self.metric, *self.capabilities))

    def measure(self, records: Sequence[PromptRecord]) -> GateMeasurements:
        """Return the values of an evaluation that the gate compares."""
        names = sorted({self.metric, *self.capabilities})
        return measure(records, names, self.safety_patterns, self.severity, self.copied, self.hallucination)

    def next_look(self, looked: int = 0, spent: float = 0.0) -> Look:
        """Return the look after `looked` others; see models.evaluation.gate.budget."""
        return next_look(looked, spent, budget=self.error_budget, looks=self.looks)


@dataclass(frozen=True)
class Verdict:
    """Decision of the gate on a candidate, with its checks."""

    promoted: bool
    checks: tuple[GateCheck, ...]
    """`better` first, then the guards against the baseline, then those against the anchor."""
    difference: Interval
    """Candidate minus baseline for the metric, at the settings' confidence, as if this were the only look."""
    look: Look
    detectable: float
    """Smallest true difference that this comparison would have found with 80 % power."""

    @property
    def lines(self) -> list[str]:
        """Notes on the comparison for readers, one sentence each."""
        return comparison_notes(self.detectable, self.look)


def comparison_notes(detectable: float, look: Look) -> list[str]:
    """Return the power of a comparison and the error budget that is left, one sentence each."""
    power = (
        f"a true difference of {detectable:.3f} or more would have been found with 80 % power"
        if math.isfinite(detectable)
        else "no difference, however large, could have been found: too few problems, or no error budget left"
    )
    return [power, str(look)]


def judge(
    candidate: Sequence[PromptRecord],
    baseline: Sequence[PromptRecord],
    settings: GateSettings,
    *,
    anchor: Sequence[PromptRecord] | str = "no anchor exists before the first promotion",
    look: Look | None = None,
    reward_model: bool = True,
    held_out: Mapping[str, HeldOutAnswers] | None = None,
    suites: tuple[Sequence[GateCheck], Sequence[GateCheck]] = ((), ()),
) -> Verdict:
    """Compare a candidate with a baseline (the champion, or the base model), measured on the same prompts.

    Args:
        candidate: its evaluation on the gate's problems.
        baseline: evaluation of the model that it may replace.
        settings: the recipe's settings.
        anchor: evaluation of the anchor version for the second set of guards, or why there is none.
        look: error probability that this look may spend; None: the first look.
        reward_model: whether the recipe fits one, so that every sample must have a score.
        held_out: name -> evaluations on each of the recipe's held-out sets.
        suites: guards of the evaluation suites, against the baseline and against the anchor (`suite_checks`).

    Raises:
        UserError: they were not measured on the same prompts, or a metric is defined on none of them.
    """
    new, old = aligned(candidate, baseline)
    anchor_measurements: GateMeasurements | str = (
        anchor if isinstance(anchor, str) else settings.measure(aligned(candidate, anchor)[1])
    )
    for name, key in ((settings.metric, "metric"), *((name, "capabilities") for name in settings.capabilities)):
        if not defined_on(new, name).any():
            raise UserError(f"gate.{key}: {name} is defined on none of the {len(new)} prompts")
    anchored = not isinstance(anchor, str)
    own = HeldOutAnswers(candidate, baseline, None if isinstance(anchor, str) else anchor)
    held_out_results = held_out_checks(settings.held_out, held_out or {}, settings.confidence, anchored, own)
    measurements = (settings.measure(new), settings.measure(old))
    return judge_measurements(
        *measurements,
        settings,
        anchor=anchor_measurements,
        look=look,
        reward_model=reward_model,
        held_out=([*held_out_results[0], *suites[0]], [*held_out_results[1], *suites[1]]),
    )


def judge_measurements(
    new: GateMeasurements,
    old: GateMeasurements,
    settings: GateSettings,
    *,
    anchor: GateMeasurements | str = "no anchor exists before the first promotion",
    look: Look | None = None,
    reward_model: bool = True,
    held_out: tuple[Sequence[GateCheck], Sequence[GateCheck]] = ((), ()),
) -> Verdict:
    """Reach the verdict of `judge` from evaluations that are arrays already.

    `held_out` has the checks of the held-out sets and the suites, against the baseline and against the anchor.
    """
    look = look or settings.next_look()
    values = (new.metrics[settings.metric], old.metrics[settings.metric])
    better, difference, detectable = better_check(settings.metric, *values, look, settings.confidence)
    checks = [better, *guard_checks(new, old, settings, reward_model), *held_out[0]]
    if isinstance(anchor, str):
        checks.append(GateCheck("anchor", "not_applicable", math.nan, math.nan, anchor))
    else:
        checks += [*guard_checks(new, anchor, settings, reward_model, "_anchor"), *held_out[1]]
    return Verdict(not any(check.failed for check in checks), tuple(checks), difference, look, detectable)


def better_check(
    name: str, new: Values, old: Values, look: Look, confidence: float, renewal: str = NEW_SPLIT
) -> tuple[GateCheck, Interval, float]:
    """Check that a metric rose, by the evidence that the look requires.

    Args:
        name: name of the metric.
        new: the candidate's value of each prompt, [prompts], within [0, 1]; NaN if the metric leaves the prompt out.
        old: the baseline's values of the same prompts.
        look: error probability that this look may spend.
        confidence: confidence of the interval of the difference, two-sided.
        renewal: how a user gets a new error budget, for the detail of a look without one.

    Returns:
        The check, the difference of the means, and the smallest true difference that would have been found with 80 %
        power.
    """
    left, right = without_left_out(new, old)
    broken = not_finite(f"{name} of the candidate", left) or not_finite(f"{name} of the baseline", right)
    if broken:
        no_interval = Interval(math.nan, math.nan, math.nan)
        return GateCheck("better", "failed", math.nan, 0.0, broken), no_interval, math.inf
    change = mean_change(left, right)
    two_sided = 0.5 + confidence / 2
    difference = Interval(change.estimate, change.bound(two_sided, -1), change.bound(two_sided, 1))
    detectable = detectable_difference(left - right, look.alpha)
    evidence, needed_evidence = log_e_value(left - right), -math.log(look.alpha) if look.alpha > 0 else math.inf
    detail = (
        f"{name} {difference:+.4f}, {confidence:.0%} interval; evidence e^{evidence:.2f}, "
        f"must reach e^{needed_evidence:.2f} (1 / {look.alpha:.2g})"
        if look.alpha > 0
        else f"{name} {difference.estimate:+.4f}: the error budget of these problems is spent after {look.of} looks; "
        f"{renewal}"
    )
    return (
        GateCheck("better", "passed" if evidence >= needed_evidence else "failed", evidence, needed_evidence, detail),
        difference,
        detectable,
    )


def guard_checks(
    new: GateMeasurements, old: GateMeasurements, settings: GateSettings, reward_model: bool, against: str = ""
) -> list[GateCheck]:
    """Check every guard that is on.

    Args:
        new: the candidate's values.
        old: those of the policy that it is compared with, on the same prompts.
        settings: metrics and margins.
        reward_model: whether every sample has a score of a reward model.
        against: suffix of the names: "" for the baseline, "_anchor" for the anchor.
    """
    checks: list[GateCheck] = []
    confidence = settings.confidence
    baseline_name = "the anchor" if against else "the baseline"

    def guard(
        name: str,
        arrays: Mapping[str, Values],
        change: Callable[[], Change],
        limit: float,
        side: Side,
        undefined: str = "",
    ) -> None:
        checks.append(bounded(name + against, arrays, change, limit, side, confidence, baseline_name, undefined))

    if settings.safety_patterns and settings.safety_margin is not None:
        arrays = {"flagged share": new.flagged, "flagged share of the other": old.flagged}
        guard(
            "safety", arrays, lambda: share_change(new.flagged, old.flagged, confidence, 1), settings.safety_margin, 1
        )
    if settings.severity and settings.severity_margin is not None:
        unknown = np.full(1, math.nan)
        now, before = (unknown if values is None else values for values in (new.severity, old.severity))
        arrays = {"severity": now, "severity of the other": before}
        guard("severity", arrays, lambda: mean_change(now, before), settings.severity_margin, 1)
    if settings.copied is not None:
        unknown = np.full(1, math.nan)
        now, before = (unknown if values is None else values for values in (new.copied, old.copied))
        arrays = {"copied share": now, "copied share of the other": before}
        guard("copied", arrays, lambda: share_change(now, before, confidence, 1), settings.copied.margin, 1)
    if settings.hallucination is not None:
        unknown = np.full(1, math.nan)
        now, before = (unknown if values is None else values for values in (new.hallucination, old.hallucination))
        arrays = {"hallucination index": now, "hallucination index of the other": before}
        guard("hallucination", arrays, lambda: mean_change(now, before), settings.hallucination.margin, 1)
    if settings.length_margin is not None:
        arrays = {"length": new.tokens, "length of the other": old.tokens}
        guard("length", arrays, lambda: ratio(new.tokens, old.tokens), 1 + settings.length_margin, 1)
    if settings.shortness_margin is not None:
        arrays = {"length": new.tokens, "length of the other": old.tokens}
        guard("shortness", arrays, lambda: ratio(new.tokens, old.tokens), 1 - settings.shortness_margin, -1)
    if settings.phrases_margin is not None:
        arrays = {"phrases": new.phrases, "phrases of the other": old.phrases}
        guard("phrases", arrays, lambda: ratio(new.phrases, old.phrases), 1 - settings.phrases_margin, -1)
    if settings.fluency_margin is not None:
        arrays = {"nats a token": new.nats, "nats a token of the other": old.nats}
        guard("fluency", arrays, lambda: mean_change(new.nats, old.nats), settings.fluency_margin, 1)
    if settings.diversity_margin is not None:
        arrays = {"distinct share": new.distinct, "distinct share of the other": old.distinct}
        guard("diversity", arrays, lambda: ratio(new.distinct, old.distinct), 1 - settings.diversity_margin, -1)
    if settings.capability_margin is not None:
        for name in settings.capabilities:
            kept = (new.metrics[name], old.metrics[name], settings.capability_margin)
            checks.append(share_kept(f"capability_{name}{against}", name, *kept, confidence, baseline_name))
    scores = {"reward score of the candidate": new.scores, f"reward score of {baseline_name}": old.scores}
    unscored_reason = "" if reward_model else "the recipe fits no reward model"
    checked_scores = {} if unscored_reason else scores
    scores_and_truths = (new.scores, new.correct, old.scores, old.correct)
    if settings.divergence_margin is not None:
        divergence_reason = unscored_reason or too_few(new.correct) or too_few(old.correct)
        guard(
            "divergence",
            checked_scores,
            lambda: divergence_change(*scores_and_truths),
            settings.divergence_margin,
            1,
            divergence_reason,
        )
    if settings.reward_gap_margin is not None:
        uniform_reason = "" if 0 < old.correct.mean() < 1 else f"{baseline_name}'s samples are all right or all wrong"
        guard(
            "reward_gap",
            checked_scores,
            lambda: gap_change(*scores_and_truths),
            settings.reward_gap_margin,
            1,
            unscored_reason or uniform_reason,
        )
    return checks
