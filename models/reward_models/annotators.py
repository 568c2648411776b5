"""Groups of annotators with like preferences, by hard expectation-maximisation (MaxMin-RLHF, paper 368).

    M   phi_u = argmin  sum over annotators h of group u, sum over pairs i of h,  -log sigmoid(margin_u,i)
    E   u(h)  = argmax_u  sum over pairs i of h,  log sigmoid(margin_u,i)

A single reward model of people with opposite preferences represents only the majority. Here each group has a
Bradley-Terry model of its own, and a policy is trained on the scores of the group that it serves worst (rule
`worst_group`, models.reward_models.ensemble). The groups of the annotators are not known; they are inferred.

Initially the annotators are sorted by how well a model of all pairs explains them, and cut into as many parts as there
are groups; the annotators with the worst fit disagree most with the majority. If the data name no annotators, each
prompt counts as one annotator, who judged all its pairs; the groups are then distinguished only by the pairs that share
a prompt.
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

from models.base.bounds import Positive
from models.base.errors import UserError
from models.reward_models.fit import Pair


@dataclass(frozen=True, kw_only=True)
class GroupSettings:
    """Groups of annotators, each with a reward model of its own. Section `reward_model.groups:`."""

    count: Annotated[int, Field(ge=2)] = 2
    """Number of groups."""
    rounds: Positive = 3
    """Number of times that every annotator is assigned to a group and the models are fitted again."""


class PairsAt(Sequence[Pair]):
    """A subset of many pairs, each read on access."""

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
"""Function that fits a model to each subset of the pairs and returns the margins of all pairs, [models, pairs].

A margin is the score of the chosen completion minus that of the rejected one. The subsets are [models] of [some pairs].
The number is the index of the first of these models among all that are fitted.
"""


def grouped_pairs(
    pairs: Sequence[Pair], settings: GroupSettings, margins: Margins
) -> tuple[list[PairsAt], tuple[float, ...]]:
    """Return the pairs of each group of annotators, and the share of the annotators in it, both [groups].

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
    """Return the annotator of each pair, numbered from 0 in order of appearance, [pairs].

    Each prompt is one annotator.
    """
    numbers: dict[tuple[int, ...], int] = {}
    return np.array([numbers.setdefault(tuple(pair.prompt), len(numbers)) for pair in pairs], dtype=np.int64)


def likelihoods(margins: Tensor, annotators: NDArray[np.int64]) -> Tensor:
    """Compute the log-likelihood of each annotator's pairs under each group, [groups, annotators], nats.

    Args:
        margins: score of chosen minus score of rejected under each group's model, [groups, pairs].
        annotators: annotator of each pair, [pairs].
    """
    own = functional.logsigmoid(margins.double())
    sums = own.new_zeros(len(own), int(annotators.max(initial=-1)) + 1)
    return sums.index_add_(1, torch.from_numpy(annotators), own)


def first_groups(margins: Tensor, annotators: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Assign each annotator to an initial group, [annotators].

    The annotators are sorted by the mean log-likelihood of their pairs under a model of all pairs, from its margins,
    [pairs]. They are cut into `count` parts of equal size as far as possible; the best explained are in group 0.
    """
    mean = likelihoods(margins[None], annotators)[0].numpy() / np.bincount(annotators)
    groups = np.empty(len(mean), dtype=np.int64)
    for number, part in enumerate(np.array_split(np.argsort(-mean, kind="stable"), count)):
        groups[part] = number
    return groups


def nearest_groups(margins: Tensor, annotators: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the group that explains each annotator best, [annotators]; of equal ones the first.

    The margins are [groups, pairs].

    An empty group gets one annotator, so that it has pairs to learn from. It is the one with the smallest loss in
    likelihood among those whose group has other members.
    """
    log_likelihoods = likelihoods(margins, annotators)
    groups = log_likelihoods.argmax(0).numpy().astype(np.int64)
    for empty in range(len(log_likelihoods)):
        sizes = np.bincount(groups, minlength=len(log_likelihoods))
        spare = sizes[groups] > 1
        if sizes[empty] or not spare.any():
            continue
        likelihood_changes = (log_likelihoods[empty] - log_likelihoods.max(0).values).numpy()
        groups[int(np.argmax(np.where(spare, likelihood_changes, -np.inf)))] = empty
    return groups


def held_out_groups(margins: Tensor, annotators: NDArray[np.int64], shares: Sequence[float]) -> NDArray[np.int64]:
    """Return the group of each held-out pair, [pairs], by its annotator's other pairs and never by the pair itself.

    Args:
        margins: under each group's model, [groups, pairs].
        annotators: annotator of each pair, [pairs].
        shares: shares of the groups among the annotators that the models were fitted to, [groups]: the prior for an
            annotator without other pairs.
    """
    own = functional.logsigmoid(margins.double())
    others = likelihoods(margins, annotators)[:, torch.from_numpy(annotators)] - own
    prior = others.new_tensor(shares).clamp(min=1e-12).log()
    chosen: NDArray[np.int64] = (others + prior[:, None]).argmax(0).numpy().astype(np.int64)
    return chosen
