"""Labels of steps by one comparison with a right solution, without any continuation (SPARE, paper 242).

    y_k = 1 while every step so far reaches a result that the right solution reaches too, in its order; else 0

The source has a language model align each step with one or more steps of the reference and explain the label. Here a
step is represented by the last number that it states. It is aligned with the next step of the reference that states the
same number, or with the step that its predecessor was aligned with. Steps of the reference may be skipped. A step
without a number has no label, nor has any step of a problem for which the data hold no right solution.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from models.method.registry import part
from models.method.steps import pieces_of, step_ends, step_texts
from models.reward_models.solutions import LabellingTools, Labels, Solution
from models.text.encoding import Codec

_NUMBER = re.compile(r"(?a:-?\d+(?:\.\d+)?)")


@part("reference")
class ReferenceAgreement(Labels):
    """Agreement of a step, and of all before it, with a right solution of the data."""

    needs_references = True

    def label(self, bench: LabellingTools, solutions: Sequence[Solution]) -> list[Tensor]:
        """Return one, zero or NaN for each step, [solutions] tensors of [steps]."""
        steps = [(each.problem.prompt, each.completion, each.ends) for each in solutions]
        return [torch.tensor(row) for row in agreement_labels(bench.codec, bench.marks, steps, bench.references)]


def agreement_labels(
    codec: Codec,
    marks: Sequence[str],
    solutions: Sequence[tuple[str, Sequence[int], Sequence[int]]],
    references: Mapping[str, str],
) -> list[list[float]]:
    """Label the steps of solutions by their agreement with right solutions, [solutions] of [steps].

    A label is one, zero, or NaN if it is unknown.

    Args:
        codec: codec of the tokens.
        marks: texts that end a step.
        solutions: prompt, token ids, and index of the last token of each step.
        references: a right solution by its prompt.
    """
    known: dict[str, list[str]] = {}
    for prompt in {prompt for prompt, *_ in solutions} & references.keys():
        (right,) = codec.completions([references[prompt]])
        (pieces,) = pieces_of(codec, [right])
        known[prompt] = results(codec, right, step_ends(pieces, marks))
    rows = []
    for prompt, ids, ends in solutions:
        step_results = results(codec, ids, ends)
        rows.append(aligned(step_results, known[prompt]) if prompt in known else [math.nan] * len(step_results))
    return rows


def results(codec: Codec, ids: Sequence[int], ends: Sequence[int]) -> list[str]:
    """Return the last number that each step states, empty if it states none, [steps]."""
    return [numbers[-1] if (numbers := _NUMBER.findall(text)) else "" for text in step_texts(codec, ids, ends)]


def aligned(step_results: Sequence[str], reference: Sequence[str]) -> list[float]:
    """Label each step by whether its result continues the reference's results in their order, [steps].

    The label is one while it does, zero from the first result that does not, and NaN if a step states no result.
    """
    labels, place, right = [], 0, True
    for result in step_results:
        if not result:
            labels.append(math.nan)
            continue
        later = [at for at in range(place, len(reference)) if reference[at] == result] if right else []
        right = bool(later)
        place = later[0] if later else place
        labels.append(float(right))
    return labels
