"""Scoring and selection of a round's completions; draws further prompts while too few groups are left.

Selection may leave few of a round's prompts: those that are always or never solved have no signal. A selector that
requests it (`refills`) has further prompts drawn until as many groups are left as the round has prompts, or its limit
is reached: dynamic sampling (DAPO, arXiv 2503.14476, section 3.2). Each draw is of as many prompts as are missing, so
no group with signal is drawn and left out.

Prompts and completions are drawn from the seed, the round and the number of the draw: a run that resumes from a
checkpoint draws the same as an uninterrupted one. If the round was sampled ahead (`schedule.async`), the further
completions are of the current policy, and so are their log-probs under the sampler.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

import torch
from torch import Tensor

from models.base.seeds import seed_of
from models.method.curriculum import further_prompts
from models.method.problem import Problem
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.method.scored import Scored
from models.method.slots import Slots
from models.training.meter import Meter
from models.training.score import Scoring, failures_of


@dataclass(frozen=True)
class RoundCompletions:
    """The completions of a round."""

    scored: Scored
    """All completions that were drawn."""
    chosen: Scored
    """The completions that the policy is trained on."""
    draws: int
    """Number of times that further prompts were drawn."""


def gather(
    resources: RunResources,
    slots: Slots,
    score: Scoring,
    problems: Sequence[Problem],
    rollouts: Sequence[Rollout],
    number: int,
    meter: Meter,
) -> RoundCompletions:
    """Score and select `rollouts`, and those of further prompts while a selector requests it and no reward fails.

    Args:
        resources: resources with the round's own readings.
        slots: the parts.
        score: the run's rewards.
        problems: all that prompts can be drawn from.
        rollouts: those that the round has sampled already.
        number: number of the round.
        meter: records the generation and the stages.

    Raises:
        UserError: a reward is not valid (`models.training.score`).
    """
    max_draws = max((select.refills for select in slots.select), default=0)

    def score_and_penalise(batch: Sequence[Rollout]) -> Scored:
        return resources.truncated.penalised(score(resources, batch), slots.rollouts.max_tokens)

    scored = score_and_penalise(rollouts)
    chosen = _select_completions(slots, scored)
    unused_problems = further_prompts(problems, [rollout.problem for rollout in rollouts], number, resources.seed)
    draws = 0
    while draws < max_draws and (missing := slots.rollouts.prompts - len(chosen.groups.unique())) > 0:
        prompts = list(islice(unused_problems, missing))
        if not prompts or failures_of([scored.watched]):  # a reward that is unavailable leaves every prompt flat
            break
        draws += 1
        meter.lap("score")
        draw_resources = replace(resources, seed=seed_of(resources.seed, f"refill {number}", draws))
        first = 1 + max(rollout.group for rollout in scored.rollouts)
        batch = [
            replace(rollout, group=first + rollout.group) for rollout in slots.rollouts(draw_resources, prompts, number)
        ]
        meter.generated(batch)
        further_scored = score_and_penalise(batch)
        scored, chosen = _joined(scored, further_scored), _joined(chosen, _select_completions(slots, further_scored))
    return RoundCompletions(scored, chosen, draws)


def _select_completions(slots: Slots, scored: Scored) -> Scored:
    for select in slots.select:
        scored = scored.take(select(scored))
    return scored


def _joined(earlier: Scored, other: Scored) -> Scored:
    """Join the completions of both, one after the other; watched values are counts, as no reward has a companion."""
    token_rewards: list[Tensor] | None = None
    if earlier.token_rewards is not None and other.token_rewards is not None:
        token_rewards = [*earlier.token_rewards, *other.token_rewards]
    counts = dict.fromkeys((*earlier.watched, *other.watched))
    return Scored(
        [*earlier.rollouts, *other.rollouts],
        torch.cat([earlier.rewards, other.rewards]),
        {name: torch.cat([values, other.components[name]]) for name, values in earlier.components.items()},
        {name: earlier.watched.get(name, 0) + other.watched.get(name, 0) for name in counts},
        token_rewards,
        {name: [*texts, *other.reasons.get(name, ())] for name, texts in earlier.reasons.items()},
    )
