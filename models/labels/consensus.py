"""Monte-Carlo labels that a judge confirms: the others are left out (The Lessons of Developing PRMs, paper 279).

    kept where the first wrong step by hard Monte-Carlo labels is the first wrong step by the judge, or neither has one
    y_k = 1 before that step, 0 at it, none behind it

Continuations may end right from a wrong step, by chance or by a second error, and wrong from a right one; a judge errs
elsewhere. Where both name the same step, both errors would have had to coincide. The source's judge is a large language
model; here it is the comparison with a right solution (labels reference), of which a share may be replaced by chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import torch
from torch import Tensor

from models.bounds import Positive, Share
from models.labels.monte_carlo import MonteCarlo
from models.labels.reference import Reference
from models.parts import part
from models.reward_model.solutions import Bench, Labels, Solution
from models.seeds import seed_of


@part("consensus")
class Consensus(Labels):
    """Steps up to the first wrong one, of solutions on which Monte-Carlo labels and a judge agree."""

    needs_references = True
    continuations: Positive = 8
    """Of each step, for the Monte-Carlo labels; one that ends right makes a step right."""
    judge_noise: Share = 0.0
    """Share of the solutions of which the judge names a step by chance, or none."""

    def label(self, bench: Bench, solutions: Sequence[Solution]) -> list[Tensor]:
        """One, zero or NaN for each step, [solutions] tensors of [steps]; NaN everywhere where the two do not agree."""
        estimated = MonteCarlo(continuations=self.continuations, kind="hard").label(bench, solutions)
        chance = Random(seed_of(bench.seed, "judge"))
        rows = []
        for row, judged in zip(estimated, Reference().label(bench, solutions), strict=True):
            named = first_wrong(judged)
            if chance.random() < self.judge_noise:
                named = chance.randrange(len(row) + 1)
            silent = bool(judged.isnan().all())
            rows.append(_up_to(named, len(row)) if first_wrong(row) == named and not silent else row * math.nan)
        return rows


def first_wrong(labels: Tensor) -> int:
    """Number of the first step that is labelled wrong, from 0; the number of steps where none is."""
    wrong = (labels <= 0.5).nonzero().flatten()
    return int(wrong[0]) if len(wrong) else len(labels)


def _up_to(wrong: int, steps: int) -> Tensor:
    return torch.tensor([1.0 if step < wrong else 0.0 if step == wrong else math.nan for step in range(steps)])
