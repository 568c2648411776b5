"""Mean log-ratio log pi/ref of the answers of a round: the reference point of KTO and BCO (2402.01306, 2404.04656).

    mismatched   max(0, mean of log pi/ref of each answer after the next prompt of the round)     KTO's z, 2402.01306
    matched      mean of log pi/ref of each answer after its own prompt                           BCO's d, 2404.04656

KTO needs the KL of the policy to the reference but has no samples of the policy. It uses answers to other prompts as
substitutes: they reflect the policy's change on answers in general, but not its change on this particular answer. The
mean is over a whole round, and both models are read at the start of the round, so the value does not depend on how the
batch is split. It costs two forward passes over the round's answers, and no additional one for `matched`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from models.base.bounds import Number
from models.base.errors import UserError
from models.learner.packing import Sequences
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout, groups_of


def after_next_prompt(rollouts: Sequence[Rollout], label: str) -> Sequences:
    """Pair each completion with the prompt of the next group; the last group takes the prompt of the first.

    Raises:
        UserError: there is only one group; the message names the reward, `label`.
    """
    groups = groups_of(rollouts).tolist()
    prompts = {group: rollout.problem.tokens for group, rollout in zip(groups, rollouts, strict=True)}
    if len(prompts) < 2:
        raise UserError(f"reward {label} reads answers after prompts of others: rollouts.prompts must be 2 or more")
    return Sequences(
        [prompts[(group + 1) % len(prompts)] for group in groups], [rollout.completion for rollout in rollouts]
    )


@part("log_ratio_baseline")
class LogRatioBaseline(Reward):
    """Mean log-ratio of the round, the same for every completion: a reference point, not a reward."""

    reads_learner = True

    needs_reference = True
    weight: Number = 0.0
    """Zero: it is a reference point, and not a reward of a completion."""
    over: Literal["mismatched", "matched"] = "mismatched"
    """Answers over which the mean is taken: after other prompts, with the mean clipped at zero from below (KTO); after
    their own (BCO)."""

    @property
    def one_sequence(self) -> bool:
        """Whether completions must be one sequence each: true if whole answers are read after another prompt."""
        return self.over == "mismatched"

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return the mean for each completion, [completions], nats.

        Raises:
            UserError: there is only one prompt, and its answers are to be read after others.
        """
        if self.over == "matched":
            policy, reference = resources.readings.policy(rollouts), resources.readings.reference(rollouts)
        else:
            sequences = after_next_prompt(rollouts, self.label)
            policy = resources.readings.under(resources.learner.policy, sequences, rollouts)
            with resources.learner.as_reference() as model:
                reference = None if model is None else resources.readings.under(model, sequences, rollouts)
        assert reference is not None, "the recipe check makes sure that there is a reference"
        ratios = [
            float(mine.double().sum() - other.double().sum()) for mine, other in zip(policy, reference, strict=True)
        ]
        mean = sum(ratios) / len(ratios)
        return torch.full((len(rollouts),), max(0.0, mean) if self.over == "mismatched" else mean)
