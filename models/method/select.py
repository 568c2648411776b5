"""The slot `select`: selectors, which choose the completions that the policy is trained on."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from models.method.scored import Scored
from models.method.slot_part import SlotPart


class Select(SlotPart):
    """Base class of selectors, which choose the completions that the policy is trained on."""

    slot = "select"

    @property
    def makes_pairs(self) -> bool:
        """Whether it keeps exactly two completions of different reward in each group."""
        return False

    @property
    def drops_flat(self) -> bool:
        """Whether it drops groups whose completions all have the same reward."""
        return False

    @property
    def refills(self) -> int:
        """How often a round may draw further prompts while it keeps fewer groups than it has prompts."""
        return 0

    @abstractmethod
    def __call__(self, scored: Scored) -> Tensor:
        """Return indices of the completions to keep, [kept], int64."""
