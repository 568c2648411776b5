"""The fit of one round on a tiny policy. SGD has learning rate 1, so that the change of the weights is the gradient."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from models.learner.distribution import Distribution
from models.learner.optimiser import OptimiserSettings
from models.learner.packing import Sequences
from models.method.fit import fit_round
from models.method.learner import Learner
from models.method.objective import Objective
from models.method.schedule import ScheduleSettings
from models.method.scored import Scored
from models.parts.objective.grpo import Grpo
from tests.support.tiny_models import SEQUENCES, each_token, plain_log_probs, scored, tiny_policy

STEP = OptimiserSettings(learning_rate=1.0, warmup_steps=0, clip_norm=1e9)
ADVANTAGE = torch.tensor([1.0, -1.0, 0.5, -0.25, -0.25], dtype=torch.float64)
SIZES = [2, 3]
LONGEST = 8


def round_of(sequences: Sequences = SEQUENCES, sizes: Sequence[int] = SIZES) -> Scored:
    """Return completions whose engine log-probs differ from the exact ones by 0.05, with alternating signs."""
    chosen = scored([0.0] * len(sequences), sizes, sequences=sequences)
    exact = plain_log_probs(tiny_policy(), sequences)
    shifted = [
        replace(rollout, behaviour_log_probs=row.detach() + 0.05 * (-1) ** number)
        for number, (rollout, row) in enumerate(zip(chosen.rollouts, exact, strict=True))
    ]
    return replace(chosen, rollouts=shifted)


TOKENS = each_token(ADVANTAGE, scored([0.0] * len(SEQUENCES), SIZES, sequences=SEQUENCES))


def learner_of(dtype: torch.dtype = torch.float64, temperature: float = 1.0) -> Learner:
    policy, reference = tiny_policy(dtype), tiny_policy(dtype, seed=1, spread=2.0).requires_grad_(False)
    return Learner(
        policy, torch.optim.SGD(policy.parameters()), reference, None, None, Distribution(temperature=temperature)
    )


def step(
    chosen: Scored | None = None,
    advantage: Tensor = ADVANTAGE,
    dtype: torch.dtype = torch.float64,
    objective: Objective | None = None,
    **settings: Any,
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Return the gradient and the metrics of one update."""
    learner = learner_of(dtype)
    before = copy.deepcopy(dict(learner.policy.named_parameters()))
    schedule = ScheduleSettings(optimiser=STEP, rounds=1, **settings)
    chosen = chosen or round_of()
    metrics = fit_round(learner, objective or Grpo(kl=0.1), chosen, each_token(advantage, chosen), schedule, LONGEST)
    after = dict(learner.policy.named_parameters())
    return {name: (before[name] - after[name]).detach() for name in after}, metrics


def large_round() -> Scored:
    generator = torch.Generator().manual_seed(0)
    prompts = [torch.randint(2, 20, (16,), generator=generator).tolist() for _ in range(32)]
    answers = [torch.randint(2, 20, (48,), generator=generator).tolist() for _ in range(32)]
    return scored([float(i % 2) for i in range(32)], [2] * 16, sequences=Sequences(prompts, answers))


def large_fit(chosen: Scored) -> Learner:
    learner = learner_of(torch.float64)
    schedule = ScheduleSettings(optimiser=OptimiserSettings(learning_rate=0.01), rounds=1, token_budget=2048)
    advantage = [torch.full((len(r.completion),), 1.0 - 2.0 * (i % 2)) for i, r in enumerate(chosen.rollouts)]
    fit_round(learner, Grpo(kl=0.0), chosen, advantage, schedule, 48)
    return learner
