"""The policy's output for a packed row: log-probs, entropies and, for distillation, its divergence from a judge.

The judge is a teacher, the reference or the policy itself, and may read another prompt than the policy does. Its hidden
states are read row by row as they are needed, so that no round's worth of them is kept; distributions are made from
them block by block (`models.learner.fused_divergence`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models.base.errors import UserError
from models.learner.all_completions import all_states
from models.learner.fused_divergence import Logits, absolute_gap, fused_divergence
from models.learner.fused_log_probs import Head, fused_log_probs
from models.learner.log_probs import completion_states, output_head
from models.learner.packing import Sequences
from models.learner.upload import to_device
from models.learner.whole_weights import with_whole_weights
from models.method.learner import Learner, TargetModel
from models.method.readings import Readings
from models.method.rollout import Rollout, privileged_sequences, sequences_of, trained_places
from models.method.schedule import BUDGET_KEY

LEAST_EXTRAPOLATION = 1e-3
"""Added to the weight of a contrast, so that a loss divided by this weight stays finite (AlignDistil's code)."""


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """Divergence of the policy's distribution from a judge's at each token (`models.learner.fused_divergence`)."""

    beta: float
    """0: KL(judge || policy), 1: KL(policy || judge), between them the generalised Jensen-Shannon divergence."""
    judge: TargetModel = "teacher"
    """The model whose distribution the policy's is compared with."""
    extrapolation: float | None = None
    """Strength with which the judge's logits are moved away from those of its contrast, z + w (z - z_contrast).

    w is this times the sum of |judge - contrast| over the vocabulary, plus `LEAST_EXTRAPOLATION`. None: the judge's
    logits are used unchanged.
    """
    guidance: float | None = None
    """Strength of classifier-free guidance: the judge reads the policy's prompt, and its logits are moved away from its
    own after the privileged context, z + guidance (z - z_context). None: it reads the privileged context instead."""


@dataclass(frozen=True)
class PolicyOutputs:
    """The policy's output at the trained tokens of a packed row, [trained] each, nats."""

    log_prob: Tensor
    """Log-prob of each token; gradient flows."""
    entropy: Tensor
    """Entropy of the distribution at each token; gradient flows."""
    divergence: Tensor | None = None
    """Divergence of the distribution at each token from the judge's; gradient flows. None if not requested."""
    contrast_gap: Tensor | None = None
    """Sum of |judge - contrast| over the vocabulary, of probabilities; None without a contrast."""


def read_policy(
    learner: Learner, row: Sequences, rollouts: Sequence[Rollout], readings: Readings, settings: Divergence | None
) -> PolicyOutputs:
    """Run the policy on one packed row. Only trained tokens pass through the output projection.

    Args:
        learner: the policy and its judge.
        row: prompts and completions, read as one packed row, [completions].
        rollouts: the same as rollouts, [completions].
        readings: masks and the token budget of the other models' rows.
        settings: the divergence that the objective needs; None: none.

    Raises:
        UserError: a model cannot read packed rows, or there is not a judge.
    """

    kept = trained_places(rollouts)
    if kept is not None:
        kept = to_device(kept, next(learner.policy.parameters()).device)

    def read() -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        states, targets = completion_states(learner.policy, row, learner.autocast, kept)
        head, compute = output_head(learner.policy), learner.autocast
        log_prob, entropy = fused_log_probs(
            states, head, targets, learner.distribution, compute=compute, mask=readings.mask(rollouts, kept)
        )
        if settings is None:
            return log_prob, entropy, None, None
        with torch.no_grad():
            with learner.as_judge(settings.judge) as model:
                if settings.guidance is not None:
                    target, gap = _guided(learner, model, rollouts, readings, settings.guidance), None
                else:
                    judge = _term(learner, model, privileged_sequences(rollouts), rollouts, readings)
            if settings.guidance is None:
                target, gap = _target(learner, judge, rollouts, readings, settings)
        temperature = learner.distribution.temperature
        divergence = fused_divergence(states, head, target, settings.beta, temperature, compute=compute)
        return log_prob, entropy, divergence, gap

    return PolicyOutputs(*with_whole_weights(learner.policy, read))


def contrast_weight(gap: Tensor, extrapolation: float) -> Tensor:
    """Return the weight w of a contrast (`Divergence.extrapolation`), [tokens] (AlignDistil, arXiv 2503.02832).

    Args:
        gap: sum of |judge - contrast| over the vocabulary, [tokens].
        extrapolation: extrapolation for a gap of one.
    """
    return extrapolation * gap + LEAST_EXTRAPOLATION


def _term(
    learner: Learner, model: nn.Module, sequences: Sequences, rollouts: Sequence[Rollout], readings: Readings
) -> tuple[Tensor, Head]:
    """Return a model's hidden states at the tokens that are trained on, [trained, hidden], and its output layer.

    `sequences` are the rollouts' completions after the prompts that this model reads.
    """
    states = torch.cat(
        all_states(
            model,
            sequences,
            autocast=learner.autocast,
            token_budget=readings.token_budget,
            setting=BUDGET_KEY,
        )
    )
    if (kept := trained_places(rollouts)) is not None:
        states = states[to_device(kept, states.device)]
    return (states if learner.autocast is None else states.to(learner.autocast)), output_head(model)


def _guided(
    learner: Learner, model: nn.Module, rollouts: Sequence[Rollout], readings: Readings, guidance: float
) -> Logits:
    """Return the distribution of a model under classifier-free guidance (`Divergence.guidance`)."""
    states, head = _term(learner, model, sequences_of(rollouts), rollouts, readings)
    other, _ = _term(learner, model, privileged_sequences(rollouts), rollouts, readings)
    return Logits([(states, head, 1.0 + guidance), (other, head, -guidance)], learner.distribution.temperature)


def _target(
    learner: Learner, judge: tuple[Tensor, Head], rollouts: Sequence[Rollout], readings: Readings, settings: Divergence
) -> tuple[Logits, Tensor | None]:
    """Return the target distribution, and the gap to the contrast if there is one, [tokens]."""
    temperature = learner.distribution.temperature
    states, head = judge
    if settings.extrapolation is None:
        return Logits([(states, head, 1.0)], temperature), None
    model = learner.teachers.get("contrast")
    if model is None:
        raise UserError("the objective sets the teacher apart from a contrast, but there is none: set teacher.contrast")
    other_states, other_head = _term(learner, model, privileged_sequences(rollouts), rollouts, readings)
    judging, other = Logits([(states, head, 1.0)]), Logits([(other_states, other_head, 1.0)])
    gap = absolute_gap(judging, other, len(states), states.device)
    weight = contrast_weight(gap, settings.extrapolation)
    return Logits([(states, head, 1.0 + weight), (other_states, other_head, -weight)], temperature), gap
