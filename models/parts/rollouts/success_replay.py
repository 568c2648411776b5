"""Episodes, and a remembered success in the group of a prompt whose episodes all failed (ARPO, paper 193).

    group of a prompt:  0 0 0 0   ->   0 0 0 1       the last episode is replaced by the prompt's latest success

A group without a success has no baseline to learn from, and with sparse rewards most groups of hard tasks are such.
The success is one of the policy itself, of an earlier round, with the log-probs of that time. It is worth remembering
only for prompts that come again, so the recipe trains on few of them. The learner keeps the memory and writes it into
its checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from models.base.bounds import Positive
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.rewards.episodes.solved import reached_goal
from models.parts.rollouts.episodes import Episodes


@part("success_replay")
class SuccessReplay(Episodes):
    """Episodes, with remembered successes in groups that failed. Set under `rollouts:`."""

    off_policy = True
    fresh_first = True
    remembered: Positive = 1024
    """Largest number of prompts whose latest success is remembered; those that were solved last are kept."""

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return episodes, those of one prompt next to each other, [prompts * G]."""
        made = super().__call__(resources, problems, round_number)
        memory, seats = resources.learner.memory, self.environment.learning
        latest = {(kept.problem.id, kept.group % seats): kept for successes in memory for kept in successes}
        mixed: list[Rollout] = []
        for number, episodes in groupby(made, key=lambda rollout: rollout.group):
            group = list(episodes)
            key = group[0].problem.id, number % seats
            if (success := next(filter(reached_goal, group), None)) is not None:
                latest.pop(key, None)
                latest[key] = success
            elif key in latest:
                group[-1] = replace(latest[key], group=number)
            mixed += group
        memory[:] = [list(latest.values())[-self.remembered :]]
        return mixed
