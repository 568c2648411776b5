"""Labels of steps by one comparison with a right solution, without any continuation (SPARE, paper 242).

    y_k = 1 while every step so far reaches a result that the right solution reaches too, in its order; else 0

The source has a language model align each step with one or more steps of the reference and explain the label. Here a
step is what it states last, a number: it is aligned with the next step of the reference that states the same, or with
the one that the step before it was aligned with. Steps of the reference may be passed over. A step without a number
has no label, nor has any step of a problem for which the data hold no right solution.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import torch
from torch import Tensor

from models.critic.steps import pieces_of, step_ends
from models.parts import part
from models.reward_model.solutions import Bench, Labels, Solution

_NUMBER = re.compile(r"(?a:-?\d+(?:\.\d+)?)")


@part("reference")
class Reference(Labels):
    """Whether a step agrees with a right solution of the data, and all before it did."""

    needs_references = True

    def label(self, bench: Bench, solutions: Sequence[Solution]) -> list[Tensor]:
        """One, zero or NaN for each step, [solutions] tensors of [steps]."""
        known: dict[str, list[str]] = {}
        for prompt in {each.problem.prompt for each in solutions} & bench.references.keys():
            (ids,) = bench.codec.completions([bench.references[prompt]])
            (pieces,) = pieces_of(bench.codec, [ids])
            known[prompt] = results(bench, ids, step_ends(pieces, bench.marks))
        rows = []
        for each in solutions:
            reference = known.get(each.problem.prompt)
            said = results(bench, each.completion, each.ends)
            rows.append(torch.tensor([math.nan] * len(said) if reference is None else aligned(said, reference)))
        return rows


def results(bench: Bench, ids: Sequence[int], ends: Sequence[int]) -> list[str]:
    """The number that each step states last, empty where it states none, [steps]."""
    begins = [0, *(end + 1 for end in ends[:-1])]
    texts = bench.codec.text([ids[begin : end + 1] for begin, end in zip(begins, ends, strict=True)])
    return [numbers[-1] if (numbers := _NUMBER.findall(text)) else "" for text in texts]


def aligned(said: Sequence[str], reference: Sequence[str]) -> list[float]:
    """One while the results keep to those of the reference in their order, zero from the first that does not, NaN where
    a step states none, [steps]."""
    labels, place, right = [], 0, True
    for result in said:
        if not result:
            labels.append(math.nan)
            continue
        later = [at for at in range(place, len(reference)) if reference[at] == result] if right else []
        right = bool(later)
        place = later[0] if later else place
        labels.append(float(right))
    return labels
