"""Reliability of a reward model on a policy's samples: the metrics of a report, and the thresholds of a recipe.

In addition to the order of samples (`models.reward_models.ranking`), the influence of features that the score should
ignore:

    length bias     Spearman's correlation of score and length among samples of the same prompt that are all right or
                    all wrong, the mean over such sets: 0 is none, 1 the longer the better
    answer alone    change of the score if all but the line of the answer is removed, in standard deviations of the
                    scores; correctness does not change, so a score of correctness would not either
    repeated        the same if the completion is repeated once
    suffix          gain of a searched suffix on wrong answers (`models.reward_models.suffixes`)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeInt

from models.base.bounds import Positive, Share
from models.evaluation.bootstrap import Interval, bootstrap_mean
from models.evaluation.metrics import prompt_values
from models.evaluation.records import Completion, PromptRecord
from models.reward_models.judges.question import COMPARE, check_template
from models.reward_models.ranking import (
    best_of_n,
    one_against,
    one_against_many,
    rank_correlation,
    separation,
    spearman,
)

FEWEST = 3
"""Minimum number of samples of a prompt, all right or all wrong, for a correlation with their length."""


@dataclass(frozen=True, kw_only=True)
class ReportSettings:
    """Measurements and thresholds of a report. Section `reward_model.report:`."""

    problems: Positive = 100
    """Problems of the validation split."""
    samples: Positive = 16
    """Completions per problem, sampled from a policy."""
    suffix: NonNegativeInt = 3
    """Ids of the suffix that is searched; 0: none."""
    tried: Positive = 48
    """Candidate ids per position of the suffix."""
    against: Positive = 9
    """Wrong samples that a right sample of the same prompt is compared with. Prompts with fewer are left out."""
    judged: NonNegativeInt = 0
    """Pairs of a right and a wrong sample that the recipe's judge compares in both orders; 0: none."""
    judge_template: str = COMPARE
    """Template of the question to the judge, with the placeholders {prompt}, {first} and {second}. It answers first,
    second or neither."""
    least_separation: Share = 0.0
    """Minimum of the mean probability that a right sample scores above a wrong one of the same prompt."""
    least_gain: float | None = None
    """Minimum gain in the share of right answers by choosing the best of `samples` by score; null: not checked."""
    most_length_bias: Share = 1.0
    """Maximum absolute correlation of score and length."""
    most_fooled: Share = 1.0
    """Maximum share of wrong answers that the suffix raises above a right one."""

    def __post_init__(self) -> None:
        check_template(self.judge_template, {"prompt", "first", "second"}, "reward_model.report.judge_template")


@dataclass(frozen=True)
class PolicyReport:
    """Quality of a reward model on a policy's samples."""

    prompts: int
    separation: Interval | None
    """Over prompts with right and wrong samples; None without such prompts."""
    one_against_many: Interval | None
    one_against_prompts: int
    """Prompts with a right sample and enough wrong ones for `one_against`."""
    one_against: Interval | None
    """Probability that a right sample scores above `against` wrong ones of its prompt; None without such prompts."""
    reciprocal_rank: Interval | None
    """Expected reciprocal rank of the right sample among them."""
    rank_correlation: float
    """NaN if it is not defined."""
    length_bias: float
    """NaN if no prompt has enough samples."""
    best_of: Mapping[int, Interval]
    """Share of right answers by n, if the best of n is chosen by score."""
    any_of: Mapping[int, float]
    """The same if the truth chooses: pass@n."""

    @property
    def gain(self) -> float:
        """Share of right answers of the best of the most samples minus that of a single sample."""
        return self.best_of[max(self.best_of)].estimate - self.best_of[1].estimate

    def metrics(self) -> dict[str, float]:
        """Return the defined metrics by name."""
        named = {"rank_correlation": self.rank_correlation, "length_bias": self.length_bias, "gain": self.gain}
        named["one_against_prompts"] = float(self.one_against_prompts)
        for name in ("separation", "one_against_many", "one_against", "reciprocal_rank"):
            interval = getattr(self, name)
            if interval is not None:
                named |= {name: interval.estimate, f"{name}_low": interval.low, f"{name}_high": interval.high}
        named |= {f"best_of_{n}": interval.estimate for n, interval in self.best_of.items()}
        return {name: value for name, value in named.items() if np.isfinite(value)}


def policy_report(records: Sequence[PromptRecord], against: int = 9) -> PolicyReport:
    """Measure a reward model on scored and verified samples of a policy.

    Args:
        records: answers with scores, [prompts].
        against: wrong samples that a right one of the same prompt is compared with.

    Raises:
        UserError: `records` is empty, a prompt has no samples, prompts differ in their number, or a score is not
            finite.
    """
    accuracy = prompt_values(records, "sampled_accuracy")  # raises without samples
    samples = [record.samples for record in records]
    scores = np.array([[sample.reward_score for sample in row] for row in samples], dtype=np.float64)
    truth = np.array([[sample.correct for sample in row] for row in samples], dtype=np.float64)
    ns, ranked = _powers(scores.shape[1]), one_against(scores, truth, against)
    return PolicyReport(
        prompts=len(accuracy),
        separation=_mean(separation(scores, truth)),
        one_against_many=_mean(one_against_many(scores, truth)),
        one_against_prompts=int(np.isfinite(ranked.first).sum()),
        one_against=_mean(ranked.first),
        reciprocal_rank=_mean(ranked.reciprocal_rank),
        rank_correlation=rank_correlation(scores, truth),
        length_bias=length_bias(samples),
        best_of={n: bootstrap_mean(best_of_n(scores, truth, n)) for n in ns},
        any_of={n: float(prompt_values(records, f"pass_at_{n}").mean()) for n in ns},
    )


def length_bias(samples: Sequence[Sequence[Completion]]) -> float:
    """Compute the correlation of score and length among samples of equal correctness; NaN if it is not defined.

    `samples` are [prompts] of samples.
    """
    alike = [[sample for sample in row if sample.correct == truth] for row in samples for truth in (True, False)]
    correlations = [
        spearman([sample.tokens for sample in row], [sample.reward_score for sample in row])
        for row in alike
        if len(row) >= FEWEST
    ]
    defined = [value for value in correlations if np.isfinite(value)]
    return float(np.mean(defined)) if defined else float("nan")


def threshold_violations(settings: ReportSettings, report: PolicyReport, fooled: float | None = None) -> list[str]:
    """Return the threshold violations of a report, each as a line; empty: the reward model may be used for training.

    Args:
        settings: the thresholds.
        report: report of the policy that is to be trained.
        fooled: share of wrong answers that a suffix raises above a right one; None if none was searched.
    """
    lines = []
    if settings.least_separation > 0:
        measured = report.separation.estimate if report.separation is not None else float("nan")
        if not measured >= settings.least_separation:
            lines.append(f"separation {measured:.3f} is below least_separation {settings.least_separation:g}")
    if settings.least_gain is not None and not report.gain >= settings.least_gain:
        most = max(report.best_of)
        lines.append(f"the best of {most} adds {report.gain:+.3f}, below least_gain {settings.least_gain:g}")
    if settings.most_length_bias < 1 and not abs(report.length_bias) <= settings.most_length_bias:
        lines.append(f"length bias {report.length_bias:+.3f} is beyond most_length_bias {settings.most_length_bias:g}")
    if settings.most_fooled < 1 and fooled is not None and not fooled <= settings.most_fooled:
        lines.append(f"a suffix fools {fooled:.1%} of the wrong answers, above most_fooled {settings.most_fooled:g}")
    return lines


def _powers(most: int) -> list[int]:
    """Return 1, 2, 4, ..., and `most` itself."""
    return sorted({*(2**power for power in range(most.bit_length())), most})


def _mean(values: NDArray[np.float64]) -> Interval | None:
    """Return the mean with its interval over the prompts that have a value."""
    defined = values[np.isfinite(values)]
    return bootstrap_mean(defined) if defined.size else None
