"""Rule-based reward: how well the boxes of a completion overlap with the expected ones.

    precision = sum of IoU over the matched pairs / boxes of the completion
    recall    = sum of IoU over the matched pairs / expected boxes
    value     = (1 + beta^2) precision recall / (beta^2 precision + recall)

With one box each, the value is the intersection over union (RUIG, paper 35; UniVG-R1, paper 234, arXiv 2505.14231).
With several, every expected box is matched with one box at most, so duplicates cost precision (Rex-Omni, paper 247,
arXiv 2510.12798; DIP-R1, paper 232, arXiv 2505.23179). A completion that cannot be read is worth 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from models.answers.answers import expected_answer, extract_answer
from models.answers.boxes import Box, boxes_in, matched
from models.answers.exact import marked
from models.answers.marked_answers import without_reasoning
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout

Share = Annotated[float, Field(ge=0.0, le=1.0)]


@part("boxes")
class Boxes(Reward):
    """F-measure of a completion's boxes, by intersection over union."""

    needs_answers = True
    verifies = True
    reads: Literal["answer", "whole"] = "whole"
    """Text that the boxes are read from: the answer that a completion states, or the whole completion."""
    beta: Annotated[float, Field(gt=0.0, le=100.0)] = 1.0
    """Weight of recall against precision; above 1, missing boxes cost more than additional ones."""
    least: Share = 0.0
    """Intersection over union below which a matched pair counts as none."""
    right_from: Share = 0.5
    """Intersection over union from which a box is right. A completion is right if it has as many boxes as expected, and
    all of them are."""

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return the F-measure of each completion, [completions], from 0 to 1."""
        return torch.tensor([self._value(Attempt.of(rollout)) for rollout in rollouts])

    def stated(self, problem: Problem) -> str:
        """Return the boxes in the form in which a completion states them."""
        return marked(problem.answer) if self.reads == "answer" else expected_answer(problem.answer)

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Return whether each attempt ended and all its boxes are right, [attempts]."""
        return [self._is_right(attempt) for attempt in attempts]

    def _value(self, attempt: Attempt) -> float:
        read = self._boxes(attempt)
        if read is None:
            return 0.0
        boxes, expected = read
        total = sum(share for share in matched(boxes, expected) if share >= self.least)
        precision, recall = total / len(boxes), total / len(expected)
        if not total:
            return 0.0
        return (1 + self.beta**2) * precision * recall / (self.beta**2 * precision + recall)

    def _is_right(self, attempt: Attempt) -> bool:
        read = self._boxes(attempt)
        if read is None or len(read[0]) != len(read[1]):
            return False
        return all(share >= self.right_from for share in matched(*read))

    def _boxes(self, attempt: Attempt) -> tuple[list[Box], list[Box]] | None:
        """Return the boxes of a finished attempt and the expected ones; None if either cannot be read."""
        text = extract_answer(attempt.text) if self.reads == "answer" else without_reasoning(attempt.text)
        boxes = boxes_in(text) if text is not None and attempt.finished else None
        expected = boxes_in(expected_answer(attempt.problem.answer))
        return None if boxes is None or expected is None else (boxes, expected)
