"""The log-ratio log pi/ref that answers have on average in this round: what KTO and BCO measure an answer against.

    mismatched   max(0, mean of log pi/ref of each answer after the next prompt of the round)     KTO's z, 2402.01306
    matched      mean of log pi/ref of each answer after its own prompt                           BCO's d, 2404.04656

KTO wants the KL of the policy to the reference and has no samples of the policy; an answer to another prompt stands in
for one, for what the policy has learned of answers at large shows there, and what it has learned of this answer does
not. The mean is over a whole round and both models are read as the round begins: no part of a batch is different from
another, however it is cut. It costs two readings of the round's answers, the second one none where they are matched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from models.bounds import Number
from models.errors import UserError
from models.learner.packing import Sequences
from models.loop.rollout import Rollout, groups_of
from models.loop.slots import Reward
from models.loop.world import World
from models.parts import part


def after_next_prompt(rollouts: Sequence[Rollout], label: str) -> Sequences:
    """Each completion after the prompt of the group that follows its own; after the last group comes the first.

    Raises:
        UserError: there is only one group; the line names the reward, `label`.
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
    """The same value for every completion of a round: a point to measure from, not a reward."""

    reads_learner = True

    needs_reference = True
    weight: Number = 0.0
    """Zero: it says where zero lies, not what a completion is worth."""
    over: Literal["mismatched", "matched"] = "mismatched"
    """Which answers: after other prompts, and the mean at least zero (KTO); after their own (BCO)."""

    @property
    def one_sequence(self) -> bool:
        """Where a whole answer stands after another prompt."""
        return self.over == "mismatched"

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """The mean at each completion, [completions], nats.

        Raises:
            UserError: there is only one prompt, and its answers are to be read after others.
        """
        if self.over == "matched":
            policy, reference = world.readings.policy(rollouts), world.readings.reference(rollouts)
        else:
            sequences = after_next_prompt(rollouts, self.label)
            policy = world.readings.under(world.learner.policy, sequences, rollouts)
            with world.learner.as_reference() as model:
                reference = None if model is None else world.readings.under(model, sequences, rollouts)
        assert reference is not None, "the recipe check makes sure that there is a reference"
        ratios = [
            float(mine.double().sum() - other.double().sum()) for mine, other in zip(policy, reference, strict=True)
        ]
        mean = sum(ratios) / len(ratios)
        return torch.full((len(rollouts),), max(0.0, mean) if self.over == "mismatched" else mean)
