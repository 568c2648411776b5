"""Who among the annotators of preferences agrees with whom: hard expectation-maximisation (MaxMin-RLHF, paper 368).

    M   phi_u = argmin  sum over annotators h of group u, sum over pairs i of h,  -log sigmoid(margin_u,i)
    E   u(h)  = argmax_u  sum over pairs i of h,  log sigmoid(margin_u,i)

A single reward model of people who want opposite things is one of the majority. Each group has a Bradley-Terry model of
its own, and a policy is trained on what the group says that it serves worst (rule `worst_group`,
models.reward_model.ensemble). Nobody says which group an annotator is of.

The groups begin as annotators in the order of how well a model of all pairs explains them, cut into as many parts: whom
it explains worst disagrees most. Data that name no annotators are read as if each prompt had one of its own, who judged
all its pairs; what tells groups apart is then that pairs of one prompt go together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, overload

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from models.bounds import Positive
from models.errors import UserError
from models.reward_model.fit import Pair


@dataclass(frozen=True, kw_only=True)
class GroupSettings:
    """Groups of annotators, each with a reward model of its own. Stands under `reward_model.groups:`."""

    count: Annotated[int, Field(ge=2)] = 2
    """Of the groups."""
    rounds: Positive = 3
    """Times that every annotator is given to a group and the models are fitted anew."""


class PairsAt(Sequence[Pair]):
    """Some of many pairs, each read when it is asked for."""

    def __init__(self, pairs: Sequence[Pair], places: NDArray[np.int64]) -> None:
        self._pairs, self._places = pairs, places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, at: int) -> Pair: ...
    @overload
    def __getitem__(self, at: slice) -> PairsAt: ...
    def __getitem__(self, at: int | slice) -> Pair | PairsAt:
        return PairsAt(self._pairs, self._places[at]) if isinstance(at, slice) else self._pairs[int(self._places[at])]


Margins = Callable[[Sequence[Sequence[Pair]], int], Tensor]
"""Score of chosen less score of rejected of all pairs, [models, pairs], under models fitted to some of them each,
[models] of [some pairs]; the number is that of the first of these models among all that are asked for."""


def grouped_pairs(
    pairs: Sequence[Pair], settings: GroupSettings, margins: Margins
) -> tuple[list[PairsAt], tuple[float, ...]]:
    """The pairs of each group of annotators, and the share of the annotators that are in it, both [groups].

    Raises:
        UserError: there are fewer annotators than groups.
    """
    annotators, count = annotators_of(pairs), settings.count
    if (people := int(annotators.max(initial=-1)) + 1) < count:
        raise UserError(
            f"reward_model.groups.count: {count} groups of annotators, but the pairs have {people} prompts, each of "
            "which is read as an annotator"
        )

    def parts(groups: NDArray[np.int64]) -> list[PairsAt]:
        return [PairsAt(pairs, np.flatnonzero(groups[annotators] == number)) for number in range(count)]

    groups = first_groups(margins([pairs], 0)[0], annotators, count)
    for number in range(settings.rounds):
        groups = nearest_groups(margins(parts(groups), 1 + number * count), annotators)
    return parts(groups), tuple((np.bincount(groups, minlength=count) / people).tolist())


def annotators_of(pairs: Sequence[Pair]) -> NDArray[np.int64]:
    """Whose each pair is, numbered from 0 in order of appearance, [pairs]: whoever judged its prompt."""
    numbers: dict[tuple[int, ...], int] = {}
    return np.array([numbers.setdefault(tuple(pair.prompt), len(numbers)) for pair in pairs], dtype=np.int64)


def likelihoods(margins: Tensor, annotators: NDArray[np.int64]) -> Tensor:
    """How well each group explains each annotator, [groups, annotators], nats: the sum over the pairs.

    Args:
        margins: score of chosen less score of rejected under each group's model, [groups, pairs].
        annotators: whose each pair is, [pairs].
    """
    own = functional.logsigmoid(margins.double())
    sums = own.new_zeros(len(own), int(annotators.max(initial=-1)) + 1)
    return sums.index_add_(1, torch.from_numpy(annotators), own)


def first_groups(margins: Tensor, annotators: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Group of each annotator before there is a model of any, [annotators]: in the order of how well a model of all
    pairs explains a pair of theirs, margins [pairs], the best explained in group 0, in `count` parts as equal as may
    be."""
    mean = likelihoods(margins[None], annotators)[0].numpy() / np.bincount(annotators)
    groups = np.empty(len(mean), dtype=np.int64)
    for number, part in enumerate(np.array_split(np.argsort(-mean, kind="stable"), count)):
        groups[part] = number
    return groups


def nearest_groups(margins: Tensor, annotators: NDArray[np.int64]) -> NDArray[np.int64]:
    """The group that explains each annotator best, [annotators]; of equal ones the first. Margins, [groups, pairs].

    A group that nobody is nearest to is given the annotator whom it explains best in comparison to the nearest of those
    whose group has others, so that it has one to learn from.
    """
    known = likelihoods(margins, annotators)
    groups = known.argmax(0).numpy().astype(np.int64)
    for empty in range(len(known)):
        sizes = np.bincount(groups, minlength=len(known))
        spare = sizes[groups] > 1
        if sizes[empty] or not spare.any():
            continue
        behind = (known[empty] - known.max(0).values).numpy()
        groups[int(np.argmax(np.where(spare, behind, -np.inf)))] = empty
    return groups


def held_out_groups(margins: Tensor, annotators: NDArray[np.int64], shares: Sequence[float]) -> NDArray[np.int64]:
    """Group of each held-out pair by what its annotator's other pairs say, and never by the pair itself, [pairs].

    Args:
        margins: under each group's model, [groups, pairs].
        annotators: whose each pair is, [pairs].
        shares: of the groups among the annotators that the models were fitted to, [groups]: what is believed of
            somebody of whom nothing else is known.
    """
    own = functional.logsigmoid(margins.double())
    others = likelihoods(margins, annotators)[:, torch.from_numpy(annotators)] - own
    prior = others.new_tensor(shares).clamp(min=1e-12).log()
    chosen: NDArray[np.int64] = (others + prior[:, None]).argmax(0).numpy().astype(np.int64)
    return chosen
