"""Pairs of answers for people to compare: candidate and champion on the same prompt, blind. Pure functions.

Which of the two stands first is drawn for each prompt and turned for every second reviewer: who likes what stands first
favours neither policy.
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
    """What candidate and champion answered to one prompt."""

    problem: str
    prompt: str
    expected: str
    """What is right, "" where that is not known."""
    level: int
    candidate: str
    champion: str


@dataclass(frozen=True)
class Review:
    """What one reviewer is asked: kept beside the run, where the page of the queue does not show it."""

    model: str
    """Registered model."""
    candidate: int
    """Its version."""
    champion: int
    """The version that it is compared with."""
    data: str
    """Name of the data set whose prompts these are."""
    reviewer: str
    """"" where anybody may answer."""
    queue: str
    """Id of MLflow's queue."""
    pairs: Mapping[str, AnswerPair]
    """Trace -> pair."""
    candidate_first: Mapping[str, bool]
    """Trace -> whether the first answer is the candidate's."""

    @property
    def title(self) -> str:
        """What is compared."""
        return f"version {self.candidate} against {self.champion}"


def answer_pairs(
    measured: Sequence[tuple[PromptRecord, PromptRecord]], problems: Mapping[str, Mapping[str, Any]], most: int
) -> list[AnswerPair]:
    """Pairs of sampled answers that differ, of prompts that are chosen by a hash of their id.

    Args:
        measured: of each prompt, what the champion and what the candidate answered.
        problems: id by the candidate's records -> row of the data set with prompt and answer.
        most: pairs.
    """
    pairs = []
    for champion, candidate in sorted(measured, key=lambda both: drawn("pair", both[1].id)):
        texts = _differing(champion, candidate)
        if texts is not None and candidate.id in problems:
            row = problems[candidate.id]
            pairs.append(AnswerPair(candidate.id, str(row["prompt"]), str(row["answer"]), candidate.level, *texts))
    return pairs[:most]


def candidate_first(problem: str, reviewer: int) -> bool:
    """Whether the candidate's answer stands first for reviewer number `reviewer`; never so for two in a row."""
    return bool((int(drawn("order", problem)[0], 16) + reviewer) % 2)


def pair_trace(pair: AnswerPair, reviewer: int, key: str) -> Trace:
    """What a reviewer sees of a pair; nothing in it says whose answer is which."""
    answers = [pair.candidate, pair.champion]
    first, second = answers if candidate_first(pair.problem, reviewer) else reversed(answers)
    inputs = {"prompt": shown(pair.prompt)} | ({"expected": pair.expected} if pair.expected else {})
    outputs = {"first": shown(first), "second": shown(second)}
    return Trace(f"{key} {pair.problem}", "pair to review", inputs, outputs, {"problem": pair.problem})


def _differing(champion: PromptRecord, candidate: PromptRecord) -> tuple[str, str] | None:
    """The first two samples of candidate and champion that say something and differ."""
    for ours, theirs in zip(candidate.samples, champion.samples, strict=False):
        texts = ours.text.strip(), theirs.text.strip()
        if all(texts) and texts[0] != texts[1]:
            return ours.text, theirs.text
    return None
