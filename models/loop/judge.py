"""Who judges the policy's tokens in distillation, and what is asked of it; the frozen models of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["teacher", "contrast", "judge"]
"""What a frozen model is to the policy: whom it should be like, whom that one is set apart from, or who writes what its
completions are worth (`models.judges`), which reads texts and may have tokens of its own."""

Judge = Literal["teacher", "reference", "policy"]
"""Whose distributions the policy is drawn to: those of a frozen model of its own, of the reference, or its own, of
which the last two read something that the policy does not."""

TeacherUse = Literal["log_probs", "model"]
"""What is asked of the teacher: log-probs of given tokens, which one behind an address tells too, or the model itself,
which draws and whose whole distributions can be read."""


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """How far the policy's whole distribution is from another's, at every token (`models.learner.fused_divergence`)."""

    beta: float
    """0: KL(judge || policy), 1: KL(policy || judge), between them the generalised Jensen-Shannon divergence."""
    judge: Judge = "teacher"
    """From whose distribution."""
    extrapolation: float | None = None
    """The judge's logits are moved away from those of its contrast: z + w (z - z_contrast), w this many times the sum
    of |judge - contrast| over the vocabulary, and a little; None: it is taken as it is."""
