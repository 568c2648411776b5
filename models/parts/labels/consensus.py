"""Monte-Carlo labels that a judge confirms: the others are left out (The Lessons of Developing PRMs, paper 279).

    kept where the first wrong step by hard Monte-Carlo labels is the first wrong step by the judge, or neither has one
    y_k = 1 before that step, 0 at it, none after it

Continuations of a wrong step may end right, by chance or by a second error, and those of a right step may end wrong; a
judge errs elsewhere. If both name the same step wrongly, both errors must coincide. The source's judge is a large
language model; here it is the comparison with a right solution (labels reference), of which a share may be replaced at
random.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import torch
from torch import Tensor

from models.base.bounds import Positive, Share
from models.base.seeds import seed_of
from models.method.registry import part
from models.parts.labels.monte_carlo import MonteCarlo
from models.parts.labels.reference import ReferenceAgreement
from models.reward_models.solutions import LabellingTools, Labels, Solution


@part("consensus")
class Consensus(Labels):
    """Steps up to the first wrong one, of solutions on which Monte-Carlo labels and a judge agree."""

    needs_references = True
    continuations: Positive = 8
    """Continuations per step, for the Monte-Carlo labels; a step is right if one of them ends right."""
    judge_noise: Share = 0.0
    """Share of the solutions for which the judge names a random step, or none."""

    def label(self, bench: LabellingTools, solutions: Sequence[Solution]) -> list[Tensor]:
        """Return one, zero or NaN for each step, [solutions] tensors of [steps]; all NaN if the two do not agree."""
        estimated = MonteCarlo(continuations=self.continuations, kind="hard").label(bench, solutions)
        chance = Random(seed_of(bench.seed, "judge"))
        rows = []
        for row, judged in zip(estimated, ReferenceAgreement().label(bench, solutions), strict=True):
            named = first_wrong(judged)
            if chance.random() < self.judge_noise:
                named = chance.randrange(len(row) + 1)
            silent = bool(judged.isnan().all())
            rows.append(_up_to(named, len(row)) if first_wrong(row) == named and not silent else row * math.nan)
        return rows


def first_wrong(labels: Tensor) -> int:
    """Return the number of the first step that is labelled wrong, from 0; the number of steps if none is."""
    wrong = (labels <= 0.5).nonzero().flatten()
    return int(wrong[0]) if len(wrong) else len(labels)


def _up_to(wrong: int, steps: int) -> Tensor:
    return torch.tensor([1.0 if step < wrong else 0.0 if step == wrong else math.nan for step in range(steps)])
