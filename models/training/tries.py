"""Measurement of how hard prompts are for the current policy, from completions that are not trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from models.base.errors import UserError
from models.base.seeds import seed_of
from models.method.curriculum import CurriculumSettings, prompts_of_round
from models.method.curriculum import note as note_seen
from models.method.problem import Problem
from models.method.problem_rows import ids_of, places_of, taken
from models.method.resources import RunResources
from models.method.slots import Slots
from models.method.tally import Tally
from models.training.meter import Meter
from models.training.score import Scoring


class Tries:
    """Measures prompts with the rollouts and rewards of a run, and records the results in the run's tally."""

    def __init__(self, slots: Slots, score: Scoring, settings: CurriculumSettings, meter: Meter) -> None:
        self._slots, self._score, self._settings, self._meter = slots, score, settings, meter

    def _shares(self, resources: RunResources, problems: Sequence[Problem], purpose: str) -> dict[str, float]:
        """Return the mean reward of the tries of each prompt, by its id, in [0, 1]; a round's prompts at once."""
        apart = Tally()
        count = self._slots.rollouts.prompts
        for first in range(0, len(problems), count):
            trying = replace(resources, seed=seed_of(resources.seed, purpose, first))
            made = self._slots.rollouts(trying, problems[first : first + count], 0)
            self._meter.generated(made)
            scored = self._score(resources, made)
            note_seen(apart, scored, self._settings)
            self._meter.lap("score")
            resources.learner.tally.completions += len(made)
        return {name: total / weight for name, (total, weight) in apart.seen.items()}

    def passing(self, resources: RunResources, problems: Sequence[Problem]) -> list[Problem]:
        """Return the prompts that pass the filter by `low` and `high`: as recorded in the tally, else measured now.

        Raises:
            UserError: none is left.
        """
        tally, settings = resources.learner.tally, self._settings
        if tally.kept is None:
            count = min(settings.tried, len(problems))
            tried = prompts_of_round(problems, count, 0, resources.seed)
            shares = self._shares(resources, tried, "filter")
            kept = {name for name, share in shares.items() if settings.low <= share <= settings.high}
            tally.kept = list(ids_of(taken(problems, places_of(problems, kept))))
        if not tally.kept:
            raise UserError(
                f"schedule.curriculum: none of the prompts that were tried is solved by a share from {settings.low:g} "
                f"to {settings.high:g} of its tries; widen low and high or raise tried"
            )
        return list(taken(problems, places_of(problems, set(tally.kept))))

    def order_block(self, resources: RunResources, problems: Sequence[Problem], number: int, rounds: int) -> None:
        """If a block of rounds begins, measure its prompts and record them in the tally, the easiest first."""
        every, count = self._settings.every, self._slots.rollouts.prompts
        if number % every:
            return
        block = range(number, min(number + every, rounds))
        coming = [problem for at in block for problem in prompts_of_round(problems, count, at, resources.seed)]
        once = list({problem.id: problem for problem in coming}.values())
        shares = self._shares(resources, once, f"block {number}")
        resources.learner.tally.order = sorted((problem.id for problem in coming), key=lambda name: -shares[name])
