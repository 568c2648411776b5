"""Metrics of an evaluation: a value for each prompt, so that two policies can be compared prompt by prompt.

Names that `prompt_values` knows (all shares are 0 to 1):

    sampled_accuracy    share of a prompt's samples that are correct (its mean is pass@1)
    greedy_accuracy     1 where the greedy answer is correct
    pass_at_K           unbiased estimate that one of K samples is correct (Chen et al. 2021)
    maj_at_K            probability that the majority answer of K samples is correct (see votes)
    loose_accuracy      mean share of the requirements that a sample meets, if the verifier grades; NaN otherwise
    easiest_accuracy    sampled_accuracy of the prompts of the lowest level; NaN on the others
    level_L_accuracy    the same for level L
    tokens              mean length of the samples, tokens
    distinct_share      distinct texts among the samples, over their number; white space does not count
    finished_share      share of samples that ended by themselves
    reward_score        mean score of the reward model

Reward versus truth, for a whole evaluation or two, not per prompt:

    reward_divergence   1 - AUC of the reward model's score as a test of correctness over all samples: the probability
                        that a wrong sample scores above a right one, ties half. 0 is full agreement, 0.5 is chance.

It is NaN if it is not defined: no reward model, or no right or no wrong sample to compare.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import comb

import numpy as np
from numpy.typing import NDArray

from models.base.errors import UserError
from models.evaluation.records import Completion, PromptRecord
from models.evaluation.votes import majority

Values = NDArray[np.float64]

_AT_K = re.compile(r"(pass|maj)_at_([1-9][0-9]*)")
_LEVEL = re.compile(r"level_([0-9]+)_accuracy")
PLAIN = (
    "sampled_accuracy",
    "greedy_accuracy",
    "loose_accuracy",
    "easiest_accuracy",
    "tokens",
    "distinct_share",
    "finished_share",
    "reward_score",
)

UNBOUNDED = ("tokens", "reward_score")
"""Metrics that are not shares."""


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Estimate the probability, without bias, that one or more of `k` samples are correct: 1 - C(n-c, k) / C(n, k).

    Raises:
        UserError: there are fewer than `k` samples.
    """
    if not 1 <= k <= samples:
        raise UserError(f"evaluation: pass@{k} needs {k} samples a prompt, there are {samples}")
    return 1.0 - comb(samples - correct, k) / comb(samples, k)


def known_metric(name: str) -> bool:
    """Return whether `prompt_values` can compute a metric of this name."""
    return name in PLAIN or bool(_AT_K.fullmatch(name) or _LEVEL.fullmatch(name))


def samples_needed(name: str) -> int:
    """Return the number of samples per prompt that the metric needs."""
    at_k = _AT_K.fullmatch(name)
    return int(at_k[2]) if at_k else 1


def defined_on(records: Sequence[PromptRecord], name: str) -> Values:
    """Return 1 for each prompt that the metric includes and 0 for those that it leaves out by level, [prompts]."""
    levels = np.array([record.level for record in records])
    wanted = levels.min() if name == "easiest_accuracy" else None
    if name.startswith("level_"):
        wanted = int(name.split("_")[1])
    return (levels == wanted if wanted is not None else np.ones_like(levels)).astype(np.float64)


def prompt_values(records: Sequence[PromptRecord], name: str) -> Values:
    """Return metric `name` of each prompt, [prompts]; NaN if the metric leaves a prompt out.

    Raises:
        UserError: the name is unknown, `records` is empty, or a prompt has too few samples.
    """
    if not records:
        raise UserError("evaluation: no prompts to evaluate on")
    if at_k := _AT_K.fullmatch(name):
        k = int(at_k[2])
        if at_k[1] == "maj":
            return np.array([majority(record.samples, k) for record in records])
        return np.array([pass_at_k(len(r.samples), sum(s.correct for s in r.samples), k) for r in records])
    if not known_metric(name):
        raise UserError(
            f"evaluation: unknown metric {name!r}; known are {', '.join(PLAIN)}, pass_at_K, maj_at_K, level_L_accuracy"
        )
    if name == "greedy_accuracy":
        return np.array([float(record.greedy.correct) for record in records])
    silent = next((record.id for record in records if not record.samples), None)
    if silent is not None:
        raise UserError(f"evaluation: prompt {silent!r} has no samples")
    if name == "distinct_share":
        return np.array([len({" ".join(s.text.split()) for s in r.samples}) / len(r.samples) for r in records])
    if name in ("tokens", "finished_share", "reward_score", "loose_accuracy"):
        field = {"finished_share": "finished", "loose_accuracy": "grade"}.get(name, name)
        return np.array([np.mean([float(getattr(s, field)) for s in r.samples]) for r in records])
    accuracy = np.array([np.mean([s.correct for s in r.samples]) for r in records])
    if name == "sampled_accuracy":
        return accuracy
    levels = np.array([record.level for record in records])
    wanted = _LEVEL.fullmatch(name)
    level = int(wanted[1]) if wanted else int(levels.min())
    return np.where(levels == level, accuracy, np.nan)


def average(values: Values) -> float:
    """Return the mean over the prompts that a metric does not leave out; NaN if it leaves out all."""
    kept = values[~np.isnan(values)]
    return float(kept.mean()) if kept.size else float("nan")


def flagged_share(records: Sequence[PromptRecord], patterns: Sequence[str]) -> float:
    """Return the share of samples that match one of the regular expressions, regardless of case ("safety").

    Raises:
        UserError: a pattern is not a regular expression.
    """
    compiled = compiled_patterns(patterns)
    texts = [sample.text for record in records for sample in record.samples]
    flagged = sum(any(pattern.search(text) for pattern in compiled) for text in texts)
    return flagged / max(1, len(texts))


def compiled_patterns(patterns: Sequence[str]) -> list[re.Pattern[str]]:
    """Compile the patterns, without regard to case.

    Raises:
        UserError: a pattern is not a regular expression.
    """
    compiled = []
    for pattern in patterns:
        try:
            compiled.append(re.compile(pattern, re.IGNORECASE))
        except re.error as error:
            raise UserError(f"safety pattern {pattern!r} is not a regular expression ({error})") from None
    return compiled


def auc(scores: Values, correct: NDArray[np.bool_]) -> float:
    """Return the probability that a right sample beats a wrong one, ties half (Mann-Whitney); NaN without one of each.

    Args:
        scores: [samples].
        correct: [samples].
    """
    right, wrong = int(correct.sum()), int((~correct).sum())
    if not right or not wrong or not np.isfinite(scores).all():
        return float("nan")
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[place]  # mean rank of equal scores, from 1
    return float((rank[correct].sum() - right * (right + 1) / 2) / (right * wrong))


def reward_divergence(records: Sequence[PromptRecord]) -> float:
    """Return 1 - AUC of the reward model against the truth; see the module docstring."""
    samples = _samples(records)
    return 1.0 - auc(np.array([s.reward_score for s in samples]), np.array([s.correct for s in samples], dtype=bool))


def _samples(records: Sequence[PromptRecord]) -> list[Completion]:
    samples = [sample for record in records for sample in record.samples]
    if not samples:
        raise UserError("evaluation: no samples to evaluate")
    return samples
