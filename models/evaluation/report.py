"""An evaluation in at most 25 numbers, with names that a tracking server groups by their slash."""

from __future__ import annotations

import math
from collections.abc import Sequence

from models.evaluation.metrics import average, flagged_share, prompt_values, reward_divergence
from models.evaluation.records import PromptRecord
from models.text.answers import extract_answer

MOST_LEVELS = 8
"""Levels beyond the first so many are left out of the summary."""

ALWAYS = ["tokens", "distinct_share", "finished_share", "reward_score"]


def summary_names(ks: Sequence[int], samples: int) -> list[str]:
    """What a summary has whatever the data are: all but the levels' accuracies, flags and what is not defined.

    Args:
        ks: subset sizes of pass@k and maj@k; see `summarise`.
        samples: completions of a prompt.
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
    prefix: str = "eval/",
) -> dict[str, float]:
    """The metrics of one policy; those that are not defined are left out, so every value is finite.

    Args:
        ks: subset sizes of pass@k and maj@k, at most four; those beyond the number of samples are left out.
        safety_patterns: regular expressions of what a sample must not say.
        prefix: put before every name.

    Raises:
        UserError: there are no prompts, or a prompt has no samples.
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
    return {prefix + name: value for name, value in values.items() if math.isfinite(value)}
