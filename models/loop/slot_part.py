"""What every part may say of itself, whatever its slot (models.loop.slots)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from torch import nn

from models.loop.judge import TeacherUse
from models.loop.learner import Companion
from models.loop.rollout import Extra
from models.parts import Part

TOTAL = "total"
"""Names the weighted sum of all rewards wherever a part goes by one of them."""


class SlotPart(Part):
    """What every part may say of itself, whatever its slot."""

    renamed: ClassVar[Mapping[str, str]] = {}
    """Settings that had another name once, by that name: a recipe that still uses it is refused with the new."""

    @property
    def needs_reference(self) -> bool:
        """Whether it reads the reference, and so cannot be used with `reference: {name: none}`."""
        return False

    @property
    def needs_teacher(self) -> TeacherUse | None:
        """What it asks of the teacher; None: nothing."""
        return None

    @property
    def needs_judge(self) -> bool:
        """Whether it asks the judge."""
        return False

    @property
    def needs_likelihoods(self) -> bool:
        """Whether it asks the judge how likely given texts are, which one behind an address does not tell."""
        return False

    @property
    def by(self) -> str:
        """Label of the reward that it reads; `total`: the weighted sum of all. A setting, where others can be meant."""
        return TOTAL

    @property
    def asks_for(self) -> Extra | None:
        """What the rollouts must give with the completions."""
        return None

    @property
    def one_sequence(self) -> bool:
        """Whether it reads an episode as one prompt and what comes after it, and so none of several sequences."""
        return False

    @property
    def companion(self) -> str:
        """Name of the model of its own that is trained beside the policy, also in metrics; empty: none."""
        return ""

    @property
    def begins_as(self) -> Literal["policy", "judge"]:
        """Whose weights its companion begins with."""
        return "policy"

    def accompany(self, policy: nn.Module) -> Companion | None:
        """The model of a part that names a `companion`, made from whom it `begins_as`, as that begins; else None."""
        return None
