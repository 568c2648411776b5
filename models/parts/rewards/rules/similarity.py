"""Similarity of a completion and a reference, by characters or n-grams (papers 220, 213 and 318).

There are three uses, all without a learned model: the stated answer is compared with the problem's (translation with a
dictionary, paper 220, arXiv 2508.19481); the whole completion is compared with a set of references by BLEU, a reward
for following instructions (BLEUBERI, paper 213, arXiv 2505.11080); a completion is compared with the retrieved text by
`support`, which measures how faithful it is (PORAG, paper 318, arXiv 2504.01281). Metrics are those of
`models.answers.likeness`. Short answers share runs of letters long before they are right: chrf and gestalt give them a
positive value when bleu gives zero.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from models.answers.answers import before_answer, expected_answer, extract_answer
from models.answers.exact import marked
from models.answers.likeness import Metric, likeness, likeness_to_any
from models.base.bounds import Share
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.shared.graded import MinimumGrade


@part("similarity")
class Similarity(MinimumGrade):
    """Similarity to a reference; zero if nothing is read, or if the completion did not end."""

    metric: Metric = "chrf"
    """Similarity metric."""
    reads: Literal["answer", "whole", "before_answer"] = "answer"
    """Part of a completion that is compared: the answer that it states, all of it, or the text before the answer."""
    against: Literal["answer", "prompt"] = "answer"
    """Text that it is compared with: the problem's answer, which may be a JSON list of several texts; or the prompt, if
    it contains retrieved text."""
    right_from: Share | None = None
    """Minimum similarity of a right completion, also in evaluations and at the gate; null: another part decides."""

    @property
    def needs_answers(self) -> bool:
        """Whether it compares completions with the problems' answers."""
        return self.against == "answer"

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return values in [0, 1], [completions]."""
        return torch.tensor([self._value(Attempt.of(each)) for each in rollouts])

    def stated(self, problem: Problem) -> str | None:
        """Return the first reference in the form in which a completion states it; None if no answer is compared."""
        if self.against == "prompt" or self.reads == "before_answer":
            return None
        reference = references(problem.answer)[0]
        return marked(reference) if self.reads == "answer" else reference

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Return whether each attempt ended and is similar enough to a single reference, [attempts].

        Single references are used because BLEU against a set takes the lengths of all of them: a part of the longest
        reference that is as long as the shortest would get 1.
        """
        least = 1.0 if self.right_from is None else self.right_from
        return [self._nearest(attempt) >= least - 1e-9 for attempt in attempts]

    def grade(self, attempts: Sequence[Attempt]) -> list[float]:
        """Return the similarity of each attempt to the nearest single reference, [attempts], in [0, 1]."""
        return [self._nearest(attempt) for attempt in attempts]

    def _value(self, attempt: Attempt) -> float:
        text, targets = self._compared(attempt)
        return likeness_to_any(text, targets, self.metric)

    def _nearest(self, attempt: Attempt) -> float:
        text, targets = self._compared(attempt)
        return max((likeness(text, reference, self.metric) for reference in targets), default=0.0)

    def _compared(self, attempt: Attempt) -> tuple[str, Sequence[str]]:
        """Return the text that is compared and its references; no references if nothing is read."""
        text = self._read_text(attempt.text) if attempt.finished else None
        if not text or not text.strip():
            return "", ()
        if self.against == "prompt":
            return text, (attempt.problem.prompt,)
        targets = references(attempt.problem.answer)
        return text, tuple(map(expected_answer, targets)) if self.reads == "answer" else targets

    def _read_text(self, text: str) -> str | None:
        if self.reads == "answer":
            return extract_answer(text)
        return text if self.reads == "whole" else before_answer(text)


@lru_cache(maxsize=4096)
def references(answer: str) -> tuple[str, ...]:
    """Return the texts that an answer names: those of a JSON list of texts, otherwise the answer alone."""
    try:
        several = json.loads(answer) if answer.lstrip().startswith("[") else None
    except (ValueError, RecursionError):
        several = None
    if isinstance(several, list) and several and all(isinstance(text, str) for text in several):
        return tuple(several)
    return (answer,)
