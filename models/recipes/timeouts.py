"""Time limits of the steps, so that a step that hangs is ended and blocks neither the schedule nor a GPU."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import PositiveFloat

DAY = 86_400.0
WEEK = 7 * DAY


@dataclass(frozen=True, kw_only=True)
class TimeoutSettings:
    """Time limits of the steps, seconds. Set under `timeouts:`. They are not part of any result's key: a step that was
    ended can continue with another limit."""

    data: PositiveFloat = DAY
    validate: PositiveFloat = DAY
    warm_start: PositiveFloat = WEEK
    reward_model: PositiveFloat = WEEK
    label_steps: PositiveFloat = WEEK
    label_pairs: PositiveFloat = WEEK
    process_model: PositiveFloat = WEEK
    reward_report: PositiveFloat = DAY
    fine_tune: PositiveFloat = WEEK
    """Time limit of each run of fine_tune; a run that resumes from checkpoints gets the full time again."""
    evaluate: PositiveFloat = DAY
    """Time limit of each evaluation."""
    evaluate_strategy: PositiveFloat = DAY
    """Time limit of each evaluation with a strategy."""
    judge_champion: PositiveFloat = DAY
    promote: PositiveFloat = DAY

    def of(self, step: str) -> float:
        """Return the time limit of a step, by its name, seconds."""
        return float(getattr(self, step))
