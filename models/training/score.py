"""Scoring of a round's completions: all rewards are computed and logged, and their weighted sum is trained on."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from models.base.errors import UserError
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout
from models.method.scored import Scored
from models.training.reward_call import RewardOutput, call_reward

_LOG = logging.getLogger("rewardflow.rewards")
_FAILURES = "/failures"


class Scoring:
    """Scorer of a run's rounds; counts for each reward the consecutive rounds in which it has failed."""

    def __init__(self, rewards: Sequence[Reward]) -> None:
        self._rewards = rewards
        self._failing = {reward.label: 0 for reward in rewards}

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Scored:
        """Apply every reward to `rollouts` in the order of the recipe and add them by weight.

        A reward that blocks, fails or returns a value that is not finite is handled by its `limits`: the completions
        whose value is missing are counted in `rewards/LABEL/failures` of the round, and a line is logged.

        Raises:
            UserError: a reward finds that the recipe is wrong, or has failed for as many rounds in a row as its limits
                allow: a policy would be trained on a constant.
        """
        components: dict[str, Tensor] = {}
        watched: dict[str, float] = {}
        total = torch.zeros(len(rollouts))
        by_token: list[Tensor] | None = None
        reasons: dict[str, Sequence[str]] = {}
        for reward in self._rewards:
            if reward.companion:
                learned = reward.learn(resources, rollouts, components)
                watched |= {f"{reward.companion}/{name}": value for name, value in learned.items()}
            given = call_reward(resources, reward, rollouts, components)
            if given.failures:
                watched[f"rewards/{reward.label}{_FAILURES}"] = float(given.failures)
            watched |= {f"rewards/{reward.label}/{name}": value for name, value in given.watched.items()}
            if given.reasons is not None:
                reasons[reward.label] = given.reasons
            self._note(reward, given, len(rollouts))
            if given.tokens is not None:
                more = [reward.weight * row.float() for row in given.tokens]
                by_token = more if by_token is None else [a + b for a, b in zip(by_token, more, strict=True)]
            components[reward.label] = given.values
            total += reward.weight * given.values
        return Scored(rollouts, total, components, watched, by_token, reasons)

    def _note(self, reward: Reward, given: RewardOutput, count: int) -> None:
        """Log how a reward failed in a round, and stop the run if it has for too long."""
        limits, label = reward.limits, reward.label
        if given.failures:
            _LOG.warning(
                "reward %s: %d of %d completions count %g instead of a value (%s)",
                label, given.failures, count, limits.value, given.reason,
            )  # fmt: skip
        failed = given.failures > limits.failed_share * count
        self._failing[label] = self._failing[label] + 1 if failed else 0
        if self._failing[label] >= limits.patience:
            rounds = "a round" if limits.patience == 1 else f"{limits.patience} rounds in a row"
            raise UserError(
                f"reward {label}: no value for more than {limits.failed_share:.0%} of the completions in {rounds} "
                f"({given.reason}); a policy that continues would be trained on a constant. If a service or file "
                f"that it needs was unavailable, the same command resumes from the last checkpoint"
            )


def score(resources: RunResources, rewards: Sequence[Reward], rollouts: Sequence[Rollout]) -> Scored:
    """Score a single round; see `Scoring`."""
    return Scoring(rewards)(resources, rollouts)


def failures_of(rounds: Iterable[Mapping[str, float]]) -> dict[str, int]:
    """Count a run's completions for which a reward failed, by its label; rewards that never failed are left out.

    Args:
        rounds: metrics of every round.
    """
    counts: dict[str, int] = {}
    for metrics in rounds:
        for name, value in metrics.items():
            if name.startswith("rewards/") and name.endswith(_FAILURES):
                label = name.removeprefix("rewards/").removesuffix(_FAILURES)
                counts[label] = counts.get(label, 0) + int(value)
    return counts
