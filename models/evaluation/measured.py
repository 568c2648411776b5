"""Arrays of an evaluation: all values that the gate reads from the records of a policy, computed once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.answers.severity import severity_of, severity_table
from models.base.errors import UserError
from models.evaluation.copied import CopiedSettings, copied_flags
from models.evaluation.hallucination import HallucinationSettings, hallucination_index
from models.evaluation.metrics import compiled_patterns, prompt_values
from models.evaluation.records import Completion, PromptRecord, turns_of

Values = NDArray[np.float64]


@dataclass(frozen=True)
class GateMeasurements:
    """Values of one policy on the gate's problems; n prompts with S samples each."""

    metrics: Mapping[str, Values]
    """Metric -> its value per prompt, [n]; NaN if the metric leaves a prompt out because of its level."""
    tokens: Values
    """Mean length of a prompt's samples, [n]."""
    distinct: Values
    """Share of distinct samples, [n]."""
    flagged: Values
    """Share of samples in which a safety pattern is found, [n]."""
    correct: Values
    """0 or 1, [n, S]."""
    scores: Values
    """Scores of the reward model, [n, S]; NaN if there is none."""
    phrases: Values
    """Share of the three-word phrases of a prompt's samples that occur once in all samples, [n]; see `own_phrases`."""
    nats: Values
    """Mean nats per token of a prompt's samples under the starting policy of the training, [n]; NaN if not measured."""
    severity: Values | None = None
    """Severity of all turns together, mean over a prompt's samples, [n]; None: not computed."""
    copied: Values | None = None
    """Share of samples that are copied from training rows, [n]; NaN if not measured; None: not computed."""
    hallucination: Values | None = None
    """Hallucination index, mean over a prompt's samples, [n]; NaN if claims were not checked; None: not computed."""


def measure(
    records: Sequence[PromptRecord],
    metrics: Sequence[str],
    safety_patterns: Sequence[str] = (),
    severity: Mapping[str, float] | None = None,
    copied: CopiedSettings | None = None,
    hallucination: HallucinationSettings | None = None,
) -> GateMeasurements:
    """Compute the arrays of an evaluation.

    Raises:
        UserError: `records` is empty, or a prompt has no samples or not as many as the others.
    """
    first = prompt_values(records, "tokens")
    samples = len(records[0].samples)
    other = next((record for record in records if len(record.samples) != samples), None)
    if other is not None:
        raise UserError(
            f"evaluation: prompt {other.id!r} has {len(other.samples)} samples, {records[0].id!r} {samples}"
        )
    patterns = compiled_patterns(safety_patterns)
    flagged = [[any(p.search(s.text) for p in patterns) for s in record.samples] for record in records]
    return GateMeasurements(
        metrics={name: prompt_values(records, name) for name in metrics},
        tokens=first,
        distinct=prompt_values(records, "distinct_share"),
        flagged=np.array(flagged, dtype=np.float64).mean(axis=1),
        correct=np.array([[float(s.correct) for s in record.samples] for record in records]),
        scores=np.array([[s.reward_score for s in record.samples] for record in records], dtype=np.float64),
        phrases=own_phrases(records),
        nats=np.array([np.mean([s.start_nats for s in record.samples]) for record in records]),
        severity=severities(records, severity) if severity else None,
        copied=copied_flags(records, copied) if copied is not None else None,
        hallucination=hallucination_index(records, hallucination) if hallucination is not None else None,
    )


def own_phrases(records: Sequence[PromptRecord]) -> Values:
    """Compute the variety of a policy's language: share of three-word phrases that occur only once, [prompts].

    Occurrences are counted over all samples: phrases repeated within an answer, from answer to answer or from prompt to
    prompt do not count. A prompt whose samples have fewer than three words each has the share 0.
    """
    written = [[phrase for sample in record.samples for phrase in _phrases(sample.text)] for record in records]
    times = Counter(phrase for of_prompt in written for phrase in of_prompt)
    return np.array([sum(times[phrase] == 1 for phrase in each) / max(1, len(each)) for each in written])


def _phrases(text: str) -> list[tuple[str, ...]]:
    words = text.casefold().split()
    return list(zip(words, words[1:], words[2:], strict=False))


def severities(records: Sequence[PromptRecord], weights: Mapping[str, float]) -> Values:
    """Compute the severity of all turns together, mean over a prompt's samples, [prompts].

    Args:
        records: records of an evaluation; a completion that is not an episode is one turn.
        weights: regular expression -> weight of a turn that matches it.

    Raises:
        UserError: a pattern is not a regular expression.
    """
    table = severity_table(weights, "gate.severity")

    def of(sample: Completion) -> float:
        turns = [turn.text for turn in turns_of(sample)] if sample.turns else [sample.text]
        return sum(severity_of(turns, table))

    return np.array([np.mean([of(sample) for sample in record.samples]) for record in records])
