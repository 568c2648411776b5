"""Who judges the policy's tokens in distillation: a teacher, or the reference or the policy, which then read more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from models.loop.judge import Judge, TeacherUse
from models.loop.rollout import Extra


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The setting of parts that draw the policy to a judge, and what follows from it for the run."""

    judge: Judge = "teacher"
    """Who judges: the teacher, or the reference or the policy itself, which then read what the rollouts give them in
    place of the prompt."""

    _asks_of_teacher: ClassVar[TeacherUse]
    """What is asked of the teacher, where it is the judge."""

    @property
    def needs_teacher(self) -> TeacherUse | None:
        """Where it is the judge."""
        return self._asks_of_teacher if self.judge == "teacher" else None

    @property
    def needs_reference(self) -> bool:
        """Where it is the judge."""
        return self.judge == "reference"

    @property
    def asks_for(self) -> Extra | None:
        """What a judge reads that would say what the policy says if it read the same."""
        return None if self.judge == "teacher" else "privileged"
