"""A learner of the pipeline and synthetic batches for it, for measurements of the update alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from models.learner.distribution import Distribution
from models.learner.optimiser import OptimiserSettings, build_optimiser
from models.method.advantage import Signal
from models.method.fit import fit_round
from models.method.learner import Learner
from models.method.problem import Problem
from models.method.rollout import Rollout
from models.method.schedule import ScheduleSettings
from models.method.scored import Scored
from models.parts.objective.grpo import Grpo

OPTIMISER = OptimiserSettings(learning_rate=1e-5, warmup_steps=0)


def learner_of(policy: PreTrainedModel, autocast: torch.dtype | None) -> Learner:
    """Make the learner of a policy with its optimiser and no reference."""
    policy.train()
    return Learner(
        policy=policy,
        optimiser=build_optimiser(policy, OPTIMISER),
        reference=None,
        adapter_off=None,
        autocast=autocast,
        distribution=Distribution(),
    )


def schedule(**settings: Any) -> ScheduleSettings:
    """Make an endless schedule that keeps nothing on disk."""
    return ScheduleSettings(
        rounds=100_000, checkpoint_every=1_000_000, samples_every=1_000_000, optimiser=OPTIMISER, **settings
    )


def scored_of(
    prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[Sequence[int]]], vocabulary: int
) -> Scored:
    """Make completions, [prompts][G], as if an engine had sampled them from a nearly uniform policy."""
    draw = random.Random(0)
    likely = -float(torch.tensor(vocabulary).log())
    rollouts = [
        Rollout(
            problem=Problem(str(number), "", tokens=tuple(prompt)),
            group=number,
            completion=tuple(ids),
            behaviour_log_probs=torch.full((len(ids),), likely),
            text="",
            finished=False,
        )
        for number, (prompt, group) in enumerate(zip(prompts, completions, strict=True))
        for ids in group
    ]
    return Scored(rollouts, torch.tensor([draw.random() for _ in rollouts]), {}, {})


def grpo_update(learner: Learner, scored: Scored, settings: ScheduleSettings) -> dict[str, float]:
    """Take one optimiser step of GRPO without a KL term, as the loop takes it."""
    advantage = Signal.of_completions(scored.rewards - scored.rewards.mean(), scored.lengths).tokens
    longest = max(len(rollout.completion) for rollout in scored.rollouts)
    return fit_round(learner, Grpo(kl=0.0), scored, advantage, settings, longest)
