"""A report on a reward model for people: the page of its run, and the same numbers as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from models.evaluation.bootstrap import Interval
from models.reward_models.calibration import PairReport
from models.reward_models.judges.report import JudgeReport
from models.reward_models.ranking import spearman
from models.reward_models.step_accuracy import FirstErrors
from models.reward_models.suffixes import Suffix
from models.reward_models.trust import PolicyReport
from tasks.pages.description import cell, code, table

FEWEST_MODELS = 3
"""Minimum number of reward models for a correlation over them."""


@dataclass
class RewardModelMeasurements:
    """Measurements of a reward model."""

    pairs: PairReport | None = None
    """Report on held-out preferences; None if the data have none."""
    policies: dict[str, PolicyReport] = field(default_factory=dict)
    """Name of a policy -> report on its samples; the first is the policy that is to be trained."""
    moved: dict[str, float] = field(default_factory=dict)
    """Change that preserves the truth -> its effect on the score, in standard deviations of the scores."""
    first_errors: FirstErrors | None = None
    """For a process reward model: how often the first wrong step of the first policy's samples is identified."""
    judge: JudgeReport | None = None
    """The recipe's judge on pairs of a right and a wrong sample; None if it was not used."""
    suffix: Suffix | None = None
    suffix_text: str = ""
    agreement: dict[str, float] = field(default_factory=dict)
    """Other reward model -> share of pairs of samples that both order alike."""

    others: dict[str, PolicyReport] = field(default_factory=dict)
    """Other reward model -> report on the same samples as those of the first policy."""
    wrong_drawn: int = 9
    """Wrong samples that a right one of the same prompt is compared with."""

    def metrics(self) -> dict[str, float]:
        """Return the numbers by name, flat: those of the first policy unprefixed, those of the others with a prefix."""
        named = self.pairs.metrics() if self.pairs is not None else {}
        for number, report in enumerate(self.policies.values()):
            where = f"policy_{number}/" if number else ""
            named |= {f"{where}{name}": value for name, value in report.metrics().items()}
        named |= {f"moved/{change}": far for change, far in self.moved.items()}
        if self.first_errors is not None:
            errors = self.first_errors
            shares = {"f1": errors.f1, "erroneous": errors.erroneous, "correct": errors.correct}
            named |= {f"first_errors/{name}": share for name, share in shares.items() if share == share}
        if self.judge is not None:
            named |= {f"judge/{name}": value for name, value in self.judge.metrics().items()}
        if self.suffix is not None:
            named |= {"suffix/gain": self.suffix.gain, "suffix/fooled": self.suffix.fooled}
        named |= {f"agreement_{number}": share for number, share in enumerate(self.agreement.values())}
        for number, report in enumerate(self.others.values()):
            named |= {f"other_{number}/{name}": value for name, value in report.metrics().items()}
        if (correlation := self.choice_correlation) is not None:
            named["one_against_correlation"] = correlation
        return named

    @property
    def choice_correlation(self) -> float | None:
        """Spearman's correlation, over the reward models, of one against n with the accuracy of the best of n.

        It is None with fewer than three models, or if one of the two has no spread.
        """
        first = next(iter(self.policies.values()), None)
        reports = [report for report in (first, *self.others.values()) if report is not None]
        measured = [(report.one_against.estimate, report.gain) for report in reports if report.one_against is not None]
        if len(measured) < FEWEST_MODELS:
            return None
        correlation = spearman(*zip(*measured, strict=True))
        return correlation if correlation == correlation else None


def as_json(measured: RewardModelMeasurements, against: Sequence[str]) -> str:
    """Return the whole report as JSON, with the findings against the reward model."""
    return json.dumps({"against": list(against), **asdict(measured)}, indent=1, default=float)


def page(measured: RewardModelMeasurements, against: Sequence[str]) -> str:
    """Render the page of the step's run."""
    verdict = "\n".join(f"- {cell(line)}" for line in against) if against else "No measurement speaks against it."
    parts = ["## Can this reward model be trusted?", verdict]
    if measured.pairs is not None:
        pairs = measured.pairs
        parts.append(
            f"Held-out pairs: {pairs.pairs:,}, ordered rightly {_share(pairs.accuracy)}, calibration error "
            f"{pairs.calibration_error:.3f}."
        )
    rows = [
        [
            cell(name), str(report.prompts), _share(report.separation), _share(report.one_against_many),
            _share(report.one_against), _number(report.reciprocal_rank),
            f"{report.best_of[1].estimate:.1%}", f"{report.best_of[max(report.best_of)].estimate:.1%}",
            f"{report.any_of[max(report.any_of)]:.1%}", f"{report.rank_correlation:+.2f}", f"{report.length_bias:+.2f}",
        ]
        for name, report in measured.policies.items()
    ]  # fmt: skip
    most = max(max(report.best_of) for report in measured.policies.values())
    ranked = f"one against {measured.wrong_drawn}"
    heads = ["policy", "prompts", "separation", "one against many", ranked, "reciprocal rank", "a sample",
             f"best of {most} by score", "by truth", "rank correlation", "length bias"]  # fmt: skip
    parts.append(table(heads, rows))
    lines = [
        f"- {code(change)} moves the score by {far:+.2f} standard deviations" for change, far in measured.moved.items()
    ]
    if measured.first_errors is not None:
        errors = measured.first_errors
        lines.append(
            f"- the first wrong step is named in {errors.erroneous:.1%} of the samples that have one, and none in "
            f"{errors.correct:.1%} of the others: F1 {errors.f1:.1%}"
        )
    if measured.judge is not None:
        judge = measured.judge
        lines.append(
            f"- of {judge.pairs:,} pairs of a right and a wrong sample the judge prefers the right one "
            f"{_judged(judge.accuracy)} and the first {_judged(judge.first_place)} (one half: no position bias); both "
            f"orders agree in {judge.agreed:.1%}, {judge.unread:.1%} of its answers hold no verdict"
        )
    if measured.suffix is not None:
        lines.append(
            f"- the suffix {code(measured.suffix_text)} adds {measured.suffix.gain:+.2f} to wrong answers and lifts "
            f"{measured.suffix.fooled:.1%} of them above a right one"
        )
    lines += [
        f"- {cell(other)} orders {share:.1%} of the pairs of samples alike{_ranked(measured, other)}"
        for other, share in measured.agreement.items()
    ]
    if (correlation := measured.choice_correlation) is not None:
        lines.append(
            f"- over the {len(measured.others) + 1} reward models, one against {measured.wrong_drawn} has the rank "
            f"correlation {correlation:+.2f} with the accuracy that the best of {most} adds"
        )
    parts.append("\n".join(lines))
    return "\n\n".join(part for part in parts if part) + "\n"


def _judged(interval: Interval | None) -> str:
    return "in no pair" if interval is None else f"{interval:.1%}"


def _ranked(measured: RewardModelMeasurements, other: str) -> str:
    """Return the rank of a right sample by another reward model as the end of a line; empty if it is not defined."""
    report = measured.others.get(other)
    if report is None or report.one_against is None:
        return ""
    return f"; it has a right sample above {measured.wrong_drawn} wrong ones in {report.one_against:.1%}"


def _number(interval: Interval | None) -> str:
    return "not defined" if interval is None else f"{interval:.3f}"


def _share(interval: Interval | None) -> str:
    if interval is None:
        return "no prompt with right and wrong samples"
    return f"{interval:.1%}"
