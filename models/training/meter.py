"""Meter of a round's time, arithmetic, speed and memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from models.method.learner import Learner
from models.method.rollout import Rollout
from models.method.schedule import ScheduleSettings
from models.method.scored import Scored
from models.training.clock import Clock
from models.training.flops import Group, Shapes, forward_flops, groups_of, shapes_of, update_flops
from models.training.peak import matmul_peak, peak_memory


class Meter:
    """Meter of all rounds of a run. When it is made, it measures the machine's fastest matrix product."""

    def __init__(self, learner: Learner, settings: ScheduleSettings) -> None:
        self.device = next(learner.policy.parameters()).device
        self._learner, self._settings = learner, settings
        self._shapes = shapes_of(learner.policy)
        self._peak = matmul_peak(self.device, learner.autocast or torch.float32)
        self._clock = Clock(self.device)
        self._generated = 0

    def lap(self, stage: str) -> None:
        """End the stage `stage` of the round now; see `models.training.clock`."""
        self._clock.lap(stage)

    def generated(self, rollouts: Sequence[Rollout], seconds: float | None = None) -> None:
        """Record that the engine made `rollouts`: in the time until now, or in `seconds` of another thread."""
        self._generated += _tokens(rollouts)
        if seconds is None:
            self._clock.lap("generate")
        else:
            self._clock.waited(seconds)

    def end_round(self, scored: Scored, chosen: Scored) -> dict[str, float]:
        """Return seconds, speeds and memory of the round that ends here."""
        groups = groups_of(chosen)
        sampled = _tokens(scored.rollouts)
        tokens = {
            "generate": self._generated,
            "learn": self._settings.epochs * sum(group.tokens for group in groups),
            **dict.fromkeys(("score", "hand_over", "log", "round"), sampled),
        }
        known = all(rollout.reference_log_probs is not None for rollout in chosen.rollouts)
        flops = round_flops(self._learner, self._settings, self._shapes, groups, reference_known=known)
        self._generated = 0
        return {**self._clock.end_round(tokens, flops, self._peak), "memory/peak_gib": peak_memory(self.device)}


def round_flops(
    learner: Learner,
    settings: ScheduleSettings,
    shapes: Shapes,
    groups: Sequence[Group],
    *,
    reference_known: bool = False,
) -> float:
    """Count the operations that a round's updates need: every pass, and one forward pass each for the old log-probs (if
    there is more than one optimiser step) and for the reference (if its log-probs are not known already)."""
    flops = settings.epochs * update_flops(shapes, groups)
    if settings.minibatches * settings.epochs > 1:
        flops += forward_flops(shapes, groups)
    if not reference_known and (learner.reference is not None or learner.adapter_off is not None):
        flops += forward_flops(shapes, groups, adapter_off=learner.adapter_off is not None)
    return flops


def _tokens(rollouts: Sequence[Rollout]) -> int:
    return sum(rollout.written_tokens for rollout in rollouts)
