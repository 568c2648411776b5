"""The model that judges the policy's tokens in distillation: a teacher, the reference, or the policy itself.

Reference and policy then read more than the prompt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from models.method.learner import TargetModel, TeacherUse
from models.method.rollout import Extra


@dataclass(frozen=True, kw_only=True)
class JudgeDependent:
    """The judge that a part trains the policy towards, and the requirements of that judge for the run."""

    judge: TargetModel = "teacher"
    """Model that judges: the teacher, or the reference or the policy itself, which then read the text given by the
    rollouts instead of the prompt."""

    _asks_of_teacher: ClassVar[TeacherUse]
    """Use of the teacher, if it is the judge."""

    @property
    def needs_teacher(self) -> TeacherUse | None:
        """Use of the teacher; None if it is not the judge."""
        return self._asks_of_teacher if self.judge == "teacher" else None

    @property
    def needs_reference(self) -> bool:
        """Whether the reference is the judge."""
        return self.judge == "reference"

    @property
    def needs_extra(self) -> Extra | None:
        """Extra text for a judge that would agree with the policy if both read the same; None for a teacher."""
        return None if self.judge == "teacher" else "privileged"
