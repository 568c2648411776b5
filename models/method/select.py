"""The slot `select`: the choice of the completions that the policy is trained on."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from models.method.scored import Scored
from models.method.slot_part import SlotPart


class Select(SlotPart):
    """The choice of the completions that the policy is trained on."""

    slot = "select"

    @property
    def makes_pairs(self) -> bool:
        """Whether it leaves two completions of different reward in each group."""
        return False

    @property
    def drops_flat(self) -> bool:
        """Whether it leaves out groups whose completions all have the same reward."""
        return False

    @property
    def refills(self) -> int:
        """How often a round may draw further prompts, until as many groups are left as it has prompts."""
        return 0

    @abstractmethod
    def __call__(self, scored: Scored) -> Tensor:
        """Return indices of the completions to keep, [kept], int64."""
