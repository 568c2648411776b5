"""Labels of the parts of a description by the problem's answer: each names facts, which are right or wrong (paper 347).

    y_k = 1 if every fact that step k names is one of the answer, else 0

Each step is labelled on its own: one after a wrong step may be right. The source, FGAIF (arXiv 2404.05046), has a model
label each part of a response by kind of error. Here a rule compares it with the true description, as the reward
`label_set` does. A step without a fact has no label.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from models.answers.answers import expected_answer
from models.answers.listed import names_in
from models.method.registry import part
from models.method.steps import step_texts
from models.reward_models.solutions import LabellingTools, Labels, Solution


@part("facts")
class FactLabels(Labels):
    """Whether each step of a description names facts of the answer alone."""

    def label(self, bench: LabellingTools, solutions: Sequence[Solution]) -> list[Tensor]:
        """Return one, zero or NaN for each step, [solutions] tensors of [steps]."""
        return [self._labels(bench, solution) for solution in solutions]

    def _labels(self, bench: LabellingTools, solution: Solution) -> Tensor:
        expected = set(names_in(expected_answer(solution.problem.answer)))
        steps = [names_in(text) for text in step_texts(bench.codec, solution.completion, solution.ends)]
        return torch.tensor([float(expected.issuperset(names)) if names else math.nan for names in steps])
