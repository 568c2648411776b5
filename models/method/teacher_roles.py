"""The judges of the policy's tokens in distillation, and their use; the frozen models of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["teacher", "contrast", "judge"]
"""Role of a frozen model: the teacher that the policy imitates, the contrast that the teacher is moved away from, or
the judge that writes the worth of completions (`models.reward_models.judges`), which reads texts and may have another
tokenizer."""

Judge = Literal["teacher", "reference", "policy"]
"""Model whose distributions the policy is trained towards: a frozen model of its own, the reference, or the policy
itself; the last two read context that the policy does not."""

TeacherUse = Literal["log_probs", "model"]
"""Use of the teacher: log-probs of given tokens, which one at an address also returns, or the model itself, which draws
and whose whole distributions can be read."""


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """How far the policy's whole distribution is from another's, at every token (`models.learner.fused_divergence`)."""

    beta: float
    """0: KL(judge || policy), 1: KL(policy || judge), between them the generalised Jensen-Shannon divergence."""
    judge: Judge = "teacher"
    """The model of the other distribution."""
    extrapolation: float | None = None
    """The judge's logits are moved away from those of its contrast: z + w (z - z_contrast), w this many times the sum
    of |judge - contrast| over the vocabulary, and a little; None: they are used unchanged."""
