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
    """Time limit of the step that prepares the data."""
    validate: PositiveFloat = DAY
    """Time limit of the validation of the data."""
    warm_start: PositiveFloat = WEEK
    """Time limit of the warm start."""
    reward_model: PositiveFloat = WEEK
    """Time limit of the fit of the reward model."""
    label_steps: PositiveFloat = WEEK
    """Time limit of labelling steps of solutions."""
    label_pairs: PositiveFloat = WEEK
    """Time limit of labelling pairs of completions."""
    process_model: PositiveFloat = WEEK
    """Time limit of the fit of the process reward model."""
    reward_report: PositiveFloat = DAY
    """Time limit of the report on the reward model."""
    fine_tune: PositiveFloat = WEEK
    """Time limit of each run of fine_tune; a run that resumes from checkpoints gets the full time again."""
    merge: PositiveFloat = DAY
    """Time limit of the merge of several policies."""
    evaluate: PositiveFloat = DAY
    """Time limit of each evaluation."""
    evaluate_strategy: PositiveFloat = DAY
    """Time limit of each evaluation with a strategy."""
    evaluate_suite: PositiveFloat = DAY
    """Time limit of each evaluation on a suite."""
    judge_champion: PositiveFloat = DAY
    """Time limit of the gate's verdict."""
    promote: PositiveFloat = DAY
    """Time limit of the promotion."""

    def of(self, step: str) -> float:
        """Return the time limit of a step, by its name, seconds."""
        return float(getattr(self, step))
