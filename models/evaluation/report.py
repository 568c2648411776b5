"""Summary of an evaluation in at most 25 numbers, with names that a tracking server groups by their slash."""

from __future__ import annotations

import math
from collections.abc import Sequence

from models.answers.answers import extract_answer
from models.evaluation.copied import CopiedSettings, copied_flags
from models.evaluation.hallucination import HallucinationSettings, hallucinated_shares, hallucination_index
from models.evaluation.metrics import average, flagged_share, prompt_values, reward_divergence
from models.evaluation.records import PromptRecord

MOST_LEVELS = 8
"""Largest number of levels in the summary; later levels are left out."""

ALWAYS = ["tokens", "distinct_share", "finished_share", "reward_score"]


def summary_names(ks: Sequence[int], samples: int) -> list[str]:
    """Return the metrics that a summary always has: all except the accuracies of levels, flags and undefined metrics.

    Args:
        ks: subset sizes of pass@k and maj@k; see `summarise`.
        samples: completions per prompt.
    """
    within = _within(ks, samples)
    at_k = [*(f"pass_at_{k}" for k in within), *(f"maj_at_{k}" for k in within if k > 1)]
    return ["sampled_accuracy", "greedy_accuracy", *at_k, *ALWAYS, "reward_divergence"]


def _within(ks: Sequence[int], samples: int) -> list[int]:
    return [k for k in ks if k <= samples][:4]


def summarise(
    records: Sequence[PromptRecord],
    *,
    ks: Sequence[int] = (1, 4, 16),
    safety_patterns: Sequence[str] = (),
    copied: CopiedSettings | None = None,
    hallucination: HallucinationSettings | None = None,
    prefix: str = "eval/",
) -> dict[str, float]:
    """Compute the metrics of one policy; undefined metrics are left out, so every value is finite.

    Args:
        ks: subset sizes of pass@k and maj@k, at most four; those above the number of samples are left out.
        safety_patterns: regular expressions for text that a sample must not contain.
        copied: the run of words from which a sample counts as copied; None: not measured.
        hallucination: weights of the hallucination index; None: not measured.
        prefix: prefix of every name.

    Raises:
        UserError: `records` is empty, or a prompt has no samples.
    """
    names = ["sampled_accuracy", "greedy_accuracy", "loose_accuracy"]
    within = _within(ks, min((len(record.samples) for record in records), default=0))
    names += [f"pass_at_{k}" for k in within]
    if any(extract_answer(sample.text) is not None for record in records for sample in record.samples):
        names += [f"maj_at_{k}" for k in within if k > 1]
    levels = sorted({record.level for record in records if record.level > 0})
    names += [f"level_{level}_accuracy" for level in levels[:MOST_LEVELS]]
    names += ALWAYS
    values = {name: average(prompt_values(records, name)) for name in names}
    values["reward_divergence"] = reward_divergence(records)
    if safety_patterns:
        values["flagged_share"] = flagged_share(records, safety_patterns)
    if copied is not None:
        samples = [sample for record in records for sample in record.samples]
        values["copied_samples"] = average(copied_flags(records, copied))
        values["copied_run"] = max(sample.copied_run for sample in samples)
        values["copied_share"] = sum(sample.copied_share for sample in samples) / len(samples)
    if hallucination is not None:
        values["hallucination"] = average(hallucination_index(records, hallucination))
        values |= {f"hallucinated_{name}": share for name, share in hallucinated_shares(records).items()}
    return {prefix + name: value for name, value in values.items() if math.isfinite(value)}
