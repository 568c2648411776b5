"""On-policy distillation by sampled tokens: how much likelier the judge finds a token than the policy that wrote it.

    A_t = sum over s >= t of discount^(s - t) * log(judge(y_s) / pi(y_s))

With discount 0, A_t is minus the reverse KL as one sample shows it, and the policy gradient with it is in expectation
that of KL(pi || judge) at each token (Thinking Machines, "On-Policy Distillation", 2025; their `train_on_policy.py`).
Only log-probs of the sampled tokens are read, which a teacher behind an address gives too. A judge that is the policy
or its reference reads something that the policy does not (SDPO's sampled form, arXiv 2601.20802).
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from models.loop.judge import Judge, TeacherUse
from models.loop.rollout import Extra, Scored
from models.loop.signal import Signal
from models.loop.slots import Advantage
from models.loop.world import World
from models.parts import part


@part("judge_log_ratio")
class JudgeLogRatio(Advantage):
    """Log-ratio of a judge to the policy at each sampled token. Stands under `advantage:`."""

    learns_from_flat_groups = True
    judge: Judge = "teacher"
    """Who judges: the teacher, or the reference or the policy itself, which then read what the rollouts give them in
    place of the prompt."""
    discount: Annotated[float, Field(ge=0, le=1)] = 0.0
    """How much a token counts what the judge says of those that follow it; 0: of itself alone."""
    weight: Annotated[float, Field(gt=0)] = 1.0
    """What a nat is worth."""

    @property
    def needs_teacher(self) -> TeacherUse | None:
        """Log-probs of the sampled tokens, where it is the judge."""
        return "log_probs" if self.judge == "teacher" else None

    @property
    def needs_reference(self) -> bool:
        """Where it is the judge."""
        return self.judge == "reference"

    @property
    def asks_for(self) -> Extra | None:
        """What a judge reads that would say what the policy says if it read the same."""
        return None if self.judge == "teacher" else "privileged"

    def __call__(self, world: World, scored: Scored) -> Signal:
        """Advantages token by token."""
        own = world.readings.policy(scored.rollouts)
        judged = world.readings.judge(scored.rollouts, self.judge)
        return Signal(
            [
                self.weight * discounted(there.cpu() - here.cpu(), self.discount)
                for here, there in zip(own, judged, strict=True)
            ]
        )


def discounted(values: Tensor, discount: float) -> Tensor:
    """Sum of each value and those after it, each step further counting `discount` times as much, [tokens]."""
    if discount == 0.0:
        return values
    total, sums = torch.zeros((), dtype=values.dtype), []
    for value in values.flip(0):
        total = value + discount * total
        sums.append(total)
    return torch.stack(sums).flip(0)
