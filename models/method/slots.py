"""All parts of a recipe together, from which the loop is built."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from torch import nn

from models.method.advantage import Advantage
from models.method.learner import Companion
from models.method.objective import Objective
from models.method.reference import Reference
from models.method.reward import Reward
from models.method.rollout_source import Rollouts
from models.method.select import Select
from models.method.slot_part import SlotPart


@dataclass(frozen=True)
class Slots:
    """The parts of a recipe by slot; rewards and selectors may be several."""

    rollouts: Rollouts
    rewards: Sequence[Reward]
    select: Sequence[Select]
    advantage: Advantage
    objective: Objective
    reference: Reference


def companions_of(
    parts: Iterable[SlotPart], policy: nn.Module, open_judge: Callable[[], nn.Module] | None = None
) -> dict[str, Companion]:
    """Build the companion models of `parts`, name -> companion, in their initial state.

    Args:
        parts: parts of a recipe.
        policy: as it begins.
        open_judge: opens a copy of the judge, for a part whose companion starts from it; None: the judge is the policy
            as it begins.
    """
    made: dict[str, Companion] = {}
    for part in parts:
        begins_as = policy if part.begins_as == "policy" or open_judge is None else open_judge()
        if (companion := part.accompany(begins_as)) is not None:
            made[part.companion] = companion
    return made


def reference_is_read_alone(reference: Reference, rollouts: Rollouts) -> bool:
    """Return whether the reference is only read: it never changes, and the source of rollouts does not need it."""
    return not (reference.moves or rollouts.needs_reference)
