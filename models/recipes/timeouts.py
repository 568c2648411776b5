"""Time limits of the steps, after which a step is ended, so that a step that hangs does not block a night or a GPU."""

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
    """Applies to each run; a run that resumes from checkpoints gets the full time again."""
    evaluate: PositiveFloat = DAY
    """Applies to each evaluation."""
    evaluate_strategy: PositiveFloat = DAY
    """Applies to each evaluation with a strategy."""
    judge_champion: PositiveFloat = DAY
    promote: PositiveFloat = DAY

    def of(self, step: str) -> float:
        """Return the time limit of a step, by its name, seconds."""
        return float(getattr(self, step))
