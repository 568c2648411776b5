"""Score of a text on the axis between things to do and things not to do (moral direction, paper 81, 2103.11790).

    axis    first principal component of the states of `do` and `avoid` phrases, in questions such as "should i X ?"
    score   projection of the text's state, 0 at the mean of the phrases, 1 at the largest absolute value of a phrase

The paper observes that what a language model has read about right and wrong orders texts on this axis without any
training on labels. The sign is chosen so that `do` phrases have the larger mean. A state is the mean hidden state of
the reference over the text. A small model knows only the norms of the corpus that it was trained on, and an axis that
explains little (`explained`), or does not separate its own phrases (`separated`), measures something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from models.base.errors import UserError
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reasoned, ReasonedReward
from models.method.rollout import Rollout
from models.parts.shared.text_states import text_states

PLACE = "{phrase}"
"""The placeholder of a phrase in a question."""


@dataclass(frozen=True)
class Axis:
    """An axis in the space of hidden states."""

    centre: Tensor
    """Mean of the phrases, [hidden]."""
    direction: Tensor
    """Unit vector from things to avoid to things to do, [hidden]."""
    scale: float
    """Largest absolute projection of a phrase."""
    explained: float
    """Share of the phrases' variance along the axis, in [0, 1]."""
    separated: float
    """Share of the pairs of a phrase to do and one to avoid that the axis orders rightly, in [0, 1]; ties half."""

    def score(self, states: Tensor) -> Tensor:
        """Return the projections of states, [texts, hidden], in units of the largest phrase, [texts]."""
        return (states - self.centre) @ self.direction / self.scale


def axis_of(do: Tensor, avoid: Tensor) -> Axis:
    """Compute the axis of phrases by a principal component analysis without labels; they only choose its sign.

    Args:
        do: states of things to do, [phrases, hidden], float64.
        avoid: states of things to avoid, [phrases, hidden], float64.

    Raises:
        UserError: all states are equal, so they have none.
    """
    states = torch.cat([do, avoid])
    centre = states.mean(0)
    _, sizes, directions = torch.linalg.svd(states - centre, full_matrices=False)
    if float(sizes[0]) <= 1e-9 * float(states.norm()):
        raise UserError("the states of all phrases are equal, so they have no direction")
    direction = directions[0]
    if float((do @ direction).mean()) < float((avoid @ direction).mean()):
        direction = -direction
    projections = (states - centre) @ direction
    gaps = projections[: len(do), None] - projections[None, len(do) :]
    ordered = (gaps > 0).double() + 0.5 * (gaps == 0).double()
    explained = float(sizes[0].square() / sizes.square().sum())
    return Axis(centre, direction, float(projections.abs().max()), explained, float(ordered.mean()))


@part("norm_direction")
class NormDirection(ReasonedReward):
    """Projection of a completion on the axis of phrases to do and to avoid; no training."""

    reads_learner = True
    needs_reference = True
    do: tuple[str, ...] = ()
    """Phrases of things to do, such as "help people"."""
    avoid: tuple[str, ...] = ()
    """Phrases of things to avoid, such as "steal money"."""
    questions: tuple[str, ...] = ("should i {phrase} ?", "is it okay to {phrase} ?", "is it good to {phrase} ?")
    """Questions that each phrase is put into; the mean of their states is the phrase's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"rewards.{self.label}"
        if both := set(self.do) & set(self.avoid):
            raise UserError(f"{where}: {sorted(both)[0]!r} is in do and in avoid; leave it out of one of them")
        if not self.questions:
            raise UserError(f"{where}.questions: none; name one, such as 'should i {PLACE} ?'")
        if missing := [question for question in self.questions if PLACE not in question]:
            raise UserError(f"{where}.questions: {missing[0]!r} has no {PLACE}")

    @property
    def misfit(self) -> str:
        """Error message if one side is without phrases; otherwise empty."""
        return "" if self.do and self.avoid else f"rewards.{self.label}: do and avoid need at least one phrase each"

    def reasoned(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Reasoned:
        """Compute the score of each completion, [completions], in [-1, 1] for the phrases themselves.

        Raises:
            UserError: the recipe has no reference, or the phrases have no direction.
        """
        reader = f"reward {self.label}"
        filled = [question.replace(PLACE, phrase) for phrase in (*self.do, *self.avoid) for question in self.questions]
        texts = [rollout.text for rollout in rollouts]
        states = text_states(resources, [*filled, *texts], reader)
        phrases = states[: len(filled)].unflatten(0, (-1, len(self.questions))).mean(1)
        try:
            axis = axis_of(phrases[: len(self.do)], phrases[len(self.do) :])
        except UserError as error:
            raise UserError(f"{reader}: {error}; choose phrases of words that the policy's tokenizer knows") from None
        watched = {"explained": axis.explained, "separated": axis.separated}
        return Reasoned(axis.score(states[len(filled) :]).float(), [""] * len(texts), watched)
