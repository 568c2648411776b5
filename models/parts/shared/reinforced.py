"""Reinforcement learning of a judge: GRPO on the rewards of its answers, by the code that also trains policies.

    A_i   = (w_i - mean of the question) / (deviation of the question + epsilon), times the question's weight
    loss  = -min(rho A, clip(rho) A), the mean over the tokens of all answers        rho: one on the first step

The answers to a question are its group. Questions whose answers all have the same reward give no gradient and are
dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from models.learner.distribution import Distribution
from models.learner.optimiser import NotFinite, OptimiserSettings
from models.method.fit import fit_round
from models.method.judge import Answer
from models.method.learner import Companion, Learner
from models.method.problem import Problem
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.method.schedule import ScheduleSettings
from models.method.scored import Scored
from models.parts.advantage.group_relative import GroupRelative
from models.parts.objective.grpo import Grpo
from models.parts.select.drop_flat import DropFlat

WATCHED = ("loss", "entropy", "gradient_norm")
"""Metrics of a fit that are reported."""


@dataclass(frozen=True)
class JudgedQuestion:
    """A question with a judge's answers and their rewards."""

    question: str
    answers: Sequence[Answer]
    worth: Sequence[float]
    """Reward of each answer, [answers]."""
    weight: float = 1.0
    """Factor of the advantages of its answers."""


def reinforce(
    resources: RunResources,
    companion: Companion,
    answered: Sequence[JudgedQuestion],
    *,
    temperature: float,
    passes: int,
    optimiser: OptimiserSettings,
    key: str,
) -> dict[str, float]:
    """Train the judge on its own answers.

    Returns metrics: those of the fit, if there was one, and the share of the questions that it was trained on.

    Args:
        resources: gives the token budget and the data type of autocast.
        companion: the judge and its optimiser, updated in place.
        answered: answers in the judge's own tokens; answers without tokens are skipped.
        temperature: temperature at which the answers were drawn.
        passes: optimiser steps, each on all answers.
        optimiser: its settings.
        key: key of the recipe's settings, for error messages.

    Raises:
        NotFinite: the loss or a gradient is not finite.
    """
    samples = [
        (_rollout(each.question, group, answer), worth, each.weight)
        for group, each in enumerate(answered)
        for answer, worth in zip(each.answers, each.worth, strict=True)
        if answer.tokens and answer.question_tokens
    ]
    scored = Scored([rollout for rollout, _, _ in samples], torch.tensor([worth for _, worth, _ in samples]), {}, {})
    kept = DropFlat()(scored)
    trained = {"trained_share": len(scored.groups[kept].unique()) / max(1, len(answered))}
    if not len(kept):
        return trained
    chosen = scored.take(kept)
    weights = torch.tensor([weight for _, _, weight in samples])[kept]
    advantages = GroupRelative().of_completions(resources, chosen) * weights
    learner = Learner(
        companion.model,
        companion.optimiser,
        None,
        None,
        resources.learner.autocast,
        Distribution(temperature=temperature),
        updates=companion.updates,
    )
    try:
        fitted = fit_round(
            learner,
            Grpo(kl=0.0),
            chosen,
            [torch.full((int(count),), float(a)) for count, a in zip(chosen.lengths, advantages, strict=True)],
            ScheduleSettings(rounds=1, epochs=passes, token_budget=resources.token_budget, optimiser=optimiser),
            longest=int(chosen.lengths.max()),
        )
    except NotFinite as error:
        raise NotFinite(f"{key}: {error}") from error
    companion.updates = learner.updates
    return trained | {name: fitted[name] for name in WATCHED}


def _rollout(question: str, group: int, answer: Answer) -> Rollout:
    log_probs = None if answer.log_probs is None else torch.tensor(answer.log_probs)
    problem = Problem(question, question, tokens=answer.question_tokens)
    return Rollout(problem, group, answer.tokens, log_probs, answer.text, answer.finished)
