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
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from models.critic.steps import pieces_of, step_ends, step_texts
from models.parts import part
from models.reward_model.solutions import Bench, Labels, Solution
from models.text.encoding import Codec

_NUMBER = re.compile(r"(?a:-?\d+(?:\.\d+)?)")


@part("reference")
class Reference(Labels):
    """Whether a step agrees with a right solution of the data, and all before it did."""

    needs_references = True

    def label(self, bench: Bench, solutions: Sequence[Solution]) -> list[Tensor]:
        """One, zero or NaN for each step, [solutions] tensors of [steps]."""
        steps = [(each.problem.prompt, each.completion, each.ends) for each in solutions]
        return [torch.tensor(row) for row in held_against(bench.codec, bench.marks, steps, bench.references)]


def held_against(
    codec: Codec,
    marks: Sequence[str],
    solutions: Sequence[tuple[str, Sequence[int], Sequence[int]]],
    references: Mapping[str, str],
) -> list[list[float]]:
    """Labels of the steps of solutions, [solutions] of [steps]: one, zero, or NaN where nobody knows.

    Args:
        codec: of the tokens.
        marks: what ends a step.
        solutions: prompt, token ids, and place of the last token of each step.
        references: a right solution by its prompt.
    """
    known: dict[str, list[str]] = {}
    for prompt in {prompt for prompt, *_ in solutions} & references.keys():
        (right,) = codec.completions([references[prompt]])
        (pieces,) = pieces_of(codec, [right])
        known[prompt] = results(codec, right, step_ends(pieces, marks))
    rows = []
    for prompt, ids, ends in solutions:
        said = results(codec, ids, ends)
        rows.append(aligned(said, known[prompt]) if prompt in known else [math.nan] * len(said))
    return rows


def results(codec: Codec, ids: Sequence[int], ends: Sequence[int]) -> list[str]:
    """The number that each step states last, empty where it states none, [steps]."""
    return [numbers[-1] if (numbers := _NUMBER.findall(text)) else "" for text in step_texts(codec, ids, ends)]


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
