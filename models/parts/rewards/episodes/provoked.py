"""Success of a request to the target of the environment `provoke`, and the coverage of the planted weaknesses.

The reward is 1 if the target's answer failed, as in evaluations. The metrics show what success alone hides: `successes`
counts the answers that failed in all rounds so far, and `covered` the different weaknesses among them. A policy that
repeats one request has many successes and covers one weakness.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import NonNegativeInt

from models.agents.environments.provoke import weakness_of
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reasoned, ReasonedReward
from models.method.rollout import Rollout


@part("provoked")
class Provoked(ReasonedReward):
    """One if the target's answer showed a weakness, else zero; the reason names the weakness."""

    planted: NonNegativeInt = 0
    """Number of weaknesses that the target has, for the metric `coverage`, the share of them that was found; 0: it is
    not known."""

    def reasoned(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Reasoned:
        """Return 1 or 0 for each completion, [completions], and count the weaknesses since the first round."""
        names = [next(filter(None, map(weakness_of, _responses(rollout))), "") for rollout in rollouts]
        archive = resources.learner.tally.archived(self.label, filter(None, names))
        watched = {"covered": float(len(archive)), "successes": float(sum(archive.values()))}
        if self.planted:
            watched["coverage"] = len(archive) / self.planted
        return Reasoned(torch.tensor([float(bool(name)) for name in names]), names, watched)


def _responses(rollout: Rollout) -> list[str]:
    return [turn.response for turn in rollout.episode.turns]
