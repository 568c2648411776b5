"""Blind pairs for people to compare: the answers of candidate and champion to one prompt. Pure functions.

The order of the two is drawn for each prompt and reversed for every second reviewer, so that a preference for the first
answer favours neither policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from models.evaluation.records import PromptRecord
from tasks.pages.completion_traces import drawn
from tasks.tracking.traces import Trace, shown


@dataclass(frozen=True)
class AnswerPair:
    """The answers of candidate and champion to one prompt."""

    problem: str
    prompt: str
    expected: str
    """The expected answer, "" if it is unknown."""
    level: int
    candidate: str
    champion: str


@dataclass(frozen=True)
class BlindReview:
    """The pairs for one reviewer, and which answers are the candidate's; stored with the run, hidden from the queue."""

    model: str
    """Registered model."""
    candidate: int
    """Its version."""
    champion: int
    """The version that it is compared with."""
    data: str
    """Name of the data set with the prompts."""
    reviewer: str
    """Login of the reviewer; "" if any person may answer."""
    queue: str
    """Id of MLflow's queue."""
    pairs: Mapping[str, AnswerPair]
    """Trace -> pair."""
    candidate_first: Mapping[str, bool]
    """Trace -> whether the first answer is the candidate's."""

    @property
    def title(self) -> str:
        """Title of the comparison."""
        return f"version {self.candidate} against {self.champion}"


def answer_pairs(
    measured: Sequence[tuple[PromptRecord, PromptRecord]], problems: Mapping[str, Mapping[str, Any]], most: int
) -> list[AnswerPair]:
    """Return pairs of sampled answers that differ, for prompts chosen by a hash of their id.

    Args:
        measured: records of each prompt: of the champion and of the candidate.
        problems: id by the candidate's records -> row of the data set with prompt and answer.
        most: maximum number of pairs.
    """
    pairs = []
    for champion, candidate in sorted(measured, key=lambda both: drawn("pair", both[1].id)):
        texts = _differing(champion, candidate)
        if texts is not None and candidate.id in problems:
            row = problems[candidate.id]
            pairs.append(AnswerPair(candidate.id, str(row["prompt"]), str(row["answer"]), candidate.level, *texts))
    return pairs[:most]


def candidate_first(problem: str, reviewer: int) -> bool:
    """Return whether reviewer number `reviewer` sees the candidate's answer first; it alternates between reviewers."""
    return bool((int(drawn("order", problem)[0], 16) + reviewer) % 2)


def pair_trace(pair: AnswerPair, reviewer: int, key: str) -> Trace:
    """Build the trace that a reviewer sees of a pair; it does not identify whose answer is which."""
    answers = [pair.candidate, pair.champion]
    first, second = answers if candidate_first(pair.problem, reviewer) else reversed(answers)
    inputs = {"prompt": shown(pair.prompt)} | ({"expected": pair.expected} if pair.expected else {})
    outputs = {"first": shown(first), "second": shown(second)}
    return Trace(f"{key} {pair.problem}", "pair to review", inputs, outputs, {"problem": pair.problem})


def _differing(champion: PromptRecord, candidate: PromptRecord) -> tuple[str, str] | None:
    """Return the first two samples of candidate and champion that are not empty and differ."""
    for ours, theirs in zip(candidate.samples, champion.samples, strict=False):
        texts = ours.text.strip(), theirs.text.strip()
        if all(texts) and texts[0] != texts[1]:
            return ours.text, theirs.text
    return None
