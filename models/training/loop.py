"""The one loop that every method runs through: six slots, round after round.

    rollouts  = rollouts(policy, prompts)    sample completions
    scored    = rewards(rollouts)            compute the reward of each
    chosen    = select(scored)               choose those that the policy is trained on
    signal    = advantage(chosen)            compute how much better than expected they are
    policy    = fit(objective, signal)       take one or more optimiser steps
    reference = reference.follow(policy)     keep, move or reset the reference

The steps of a round are in `models.training.round`. With `schedule.async: 1` the source runs one round ahead of the fit
(models.training.ahead). With more, its completions are in flight while weights change (models.training.in_flight). If
several processes learn together, each of them runs the loop (`models.base.ranks`). With `schedule.async` below 2 the
loop is exactly resumable: every random choice of a round is drawn from the seed and the round's number, so a run that
resumes from a checkpoint ends with the weights of a run that was never interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from models.method.alarm import AlarmSettings, Collapse
from models.method.problem import Problem
from models.method.resources import RunResources
from models.method.schedule import ScheduleSettings
from models.method.slots import Slots
from models.training.round import Round, RunState
from models.training.row_lengths import require_room
from models.training.watchers import Watchers


def run_loop(
    resources: RunResources,
    slots: Slots,
    settings: ScheduleSettings,
    problems: Sequence[Problem],
    checkpoints: Path,
    watchers: Watchers,
    alarm: AlarmSettings | None = None,
) -> Collapse | None:
    """Train `resources.learner.policy` in place for `settings.rounds` rounds, resuming from the newest checkpoint.

    With an `alarm` that stops, a policy that collapses ends the run. The policy is then the best of those that the run
    began with or had at a checkpoint. The collapse is returned, also for an alarm that only warns.

    Raises:
        UserError: a canary past its tolerance, a loss that is not finite, a reward that has failed for too long, a full
            disk, a token budget that a prompt with its longest completion does not fit.
    """
    require_room(problems, slots.rollouts, slots.objective, resources.codec, settings.token_budget)
    run = RunState.resume(resources, slots, settings, problems, checkpoints, watchers, alarm)
    with run.writer, run.source:
        if run.stops and not run.start:
            run.writer.keep_best(run.learner.policy)
        for number in range(run.start, settings.rounds):
            current = Round(run, number)
            current.collect()
            current.score()
            current.learn()
            current.sync()
            current.show_samples()
            current.watch()
            current.report()
            current.checkpoint()
            if current.collapsed:
                return run.restore_best()
            if current.last:
                break
    return run.history.collapse
