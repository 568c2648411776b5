"""Accuracy of a judge on comparisons: pairs of a right and a wrong answer, asked in both orders.

    accuracy      mean preference for the right one, 1/2 is chance; position bias cancels
    first_place   mean value of the answer shown first: 1/2 without position bias, 1 if the first always wins
    agreed        share of the pairs for which both orders prefer the same answer

Position bias of judges: "Judging LLM-as-a-Judge" (arXiv 2306.05685), section 3.3, whose consistency is `agreed`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from models.evaluation.bootstrap import Interval, bootstrap_mean
from models.evaluation.records import PromptRecord
from models.method.judge import GenerativeJudge
from models.reward_models.judges.pairs import CompletionPair, compare


@dataclass(frozen=True)
class JudgeReport:
    """Accuracy and position bias of a judge on pairs with known labels."""

    pairs: int
    accuracy: Interval | None
    """None if no pair has a verdict in both orders; the same holds for `first_place`."""
    first_place: Interval | None
    agreed: float
    """NaN if no pair has a verdict in both orders."""
    unread: float
    """Share of the answers without a verdict."""

    def metrics(self) -> dict[str, float]:
        """Return the defined metrics by name."""
        named = {"unread": self.unread, "agreed": self.agreed}
        for name, interval in (("accuracy", self.accuracy), ("first_place", self.first_place)):
            if interval is not None:
                named |= {name: interval.estimate, f"{name}_low": interval.low, f"{name}_high": interval.high}
        return {name: value for name, value in named.items() if value == value}


def right_and_wrong(prompts: Sequence[str], records: Sequence[PromptRecord], most: int) -> list[CompletionPair]:
    """Return a right and a wrong finished sample of each prompt that has both, at most `most` pairs.

    The right one is `mine`.

    Args:
        prompts: as the judge reads them, [prompts].
        records: samples of each, [prompts].
        most: maximum number of pairs.
    """
    pairs = []
    for prompt, record in zip(prompts, records, strict=True):
        ended = [sample for sample in record.samples if sample.finished]
        right = next((sample.text for sample in ended if sample.correct), None)
        wrong = next((sample.text for sample in ended if not sample.correct), None)
        if right is not None and wrong is not None:
            pairs.append(CompletionPair(prompt, right, wrong, {}))
    return pairs[:most]


def judge_report(judge: GenerativeJudge, template: str, pairs: Sequence[CompletionPair]) -> JudgeReport:
    """Measure the judge on pairs, [pairs], of which `mine` is the right answer, in both orders.

    Raises:
        models.base.http_client.NoAnswer: no question got an answer.
    """
    made = compare(judge, template, pairs)
    answers = sum(len(each.answers) for each in made)
    agreed = [each.agreed for each in made if each.agreed is not None]
    return JudgeReport(
        pairs=len(pairs),
        accuracy=_mean(each.preference for each in made),
        first_place=_mean(each.place for each in made),
        agreed=sum(agreed) / len(agreed) if agreed else float("nan"),
        unread=sum(each.unread for each in made) / max(1, answers),
    )


def _mean(values: Iterable[float | None]) -> Interval | None:
    """Return the mean of the known values, with its confidence interval."""
    known = [value for value in values if value is not None]
    return bootstrap_mean(np.array(known)) if known else None
