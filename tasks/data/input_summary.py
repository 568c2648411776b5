"""A summary of a data version's problems for a policy, stored with its evaluation, as rows may be deleted later.

The gate's problems are not included: none of their numbers is logged to a run.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from models.answers.answers import answer_kind, expected_answer
from models.answers.unknown import unknown_shares
from models.datasets.row_table import open_rows
from models.datasets.schema import SYSTEM, Split, available
from models.evaluation.samples import Kinds, Numbers, Sample
from models.text.encoding import Codec

INPUTS = "inputs.json"
"""File of an evaluation with the summary, and its artifact's name."""
SPLITS: tuple[Split, ...] = ("train", "validation")
BATCH = 1024
"""Prompts that are encoded together."""


def summarise_inputs(data: Path, codec: Codec, rows: int) -> dict[str, Sample]:
    """Return FEATURE_SPLIT -> sample of the feature over that split's problems, too long ones included.

    The features are prompt length, share of unknown tokens and kind of answer; the splits are train and validation.

    Args:
        data: the clean rows.
        codec: the policy's own.
        rows: maximum number of problems of a split, evenly spaced over it.
    """
    summary: dict[str, Sample] = {}
    for split in SPLITS:
        if split in available(data).get("problems", ()):
            summary |= {f"{feature}_{split}": sample for feature, sample in _of_split(data, split, codec, rows).items()}
    return summary


def _of_split(data: Path, split: Split, codec: Codec, rows: int) -> dict[str, Sample]:
    table = open_rows(data, "problems", split)
    chosen = (np.arange(min(rows, len(table))) * len(table) // max(1, min(rows, len(table)))).tolist()
    lengths: list[int] = []
    unknown: list[float] = []
    kinds: list[str] = []
    for start in range(0, len(chosen), BATCH):
        problems = table.rows(chosen[start : start + BATCH])
        prompts = codec.prompts(
            [problem["prompt"] for problem in problems], [problem.get(SYSTEM, "") for problem in problems]
        )
        lengths += map(len, prompts)
        unknown += unknown_shares(codec.tokenizer, prompts).tolist()
        answers = [expected_answer(problem["answer"]) for problem in problems]
        kinds += [
            "tests" if row["tests"] else answer_kind(answer) for row, answer in zip(problems, answers, strict=True)
        ]
    return {
        "prompt_tokens": Numbers.of(lengths),
        "unknown_share": Numbers.of(unknown),
        "answer_kind": Kinds.of(kinds),
    }
