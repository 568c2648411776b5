"""How long each step may take before it is ended: a step that hangs must not hold a night, a folder and a GPU."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import PositiveFloat

DAY = 86_400.0
WEEK = 7 * DAY


@dataclass(frozen=True, kw_only=True)
class TimeoutSettings:
    """Seconds. Stands under `timeouts:`. No result's key holds it: a step that was ended goes on with another one."""

    data: PositiveFloat = DAY
    validate: PositiveFloat = DAY
    warm_start: PositiveFloat = WEEK
    reward_model: PositiveFloat = WEEK
    label_steps: PositiveFloat = WEEK
    label_pairs: PositiveFloat = WEEK
    process_model: PositiveFloat = WEEK
    reward_report: PositiveFloat = DAY
    fine_tune: PositiveFloat = WEEK
    """Beginning anew with each run that goes on from its checkpoints."""
    evaluate: PositiveFloat = DAY
    """Of each evaluation."""
    evaluate_strategy: PositiveFloat = DAY
    """Of each evaluation with a strategy."""
    judge_champion: PositiveFloat = DAY
    promote: PositiveFloat = DAY

    def of(self, step: str) -> float:
        """Seconds of a step, by its name."""
        return float(getattr(self, step))
