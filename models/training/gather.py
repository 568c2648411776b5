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
from models.method.rollout import Rollout
from models.method.scored import Scored
from models.method.slots import Slots
from models.method.world import World
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
    world: World,
    slots: Slots,
    score: Scoring,
    problems: Sequence[Problem],
    rollouts: Sequence[Rollout],
    number: int,
    meter: Meter,
) -> RoundCompletions:
    """Score and select `rollouts`, and those of further prompts while a selector requests it and no reward fails.

    Args:
        world: with the round's own readings.
        slots: the parts.
        score: the run's rewards.
        problems: all that prompts can be drawn from.
        rollouts: those that the round has sampled already.
        number: of the round.
        meter: records the generation and the stages.

    Raises:
        UserError: a reward is not valid (`models.training.score`).
    """
    most = max((select.refills for select in slots.select), default=0)

    def scored_and_penalised(made: Sequence[Rollout]) -> Scored:
        return world.truncated.penalised(score(world, made), slots.rollouts.max_tokens)

    scored = scored_and_penalised(rollouts)
    chosen = _selected(slots, scored)
    others = further_prompts(problems, [rollout.problem for rollout in rollouts], number, world.seed)
    draws = 0
    while draws < most and (missing := slots.rollouts.prompts - len(chosen.groups.unique())) > 0:
        prompts = list(islice(others, missing))
        if not prompts or failures_of([scored.watched]):  # a reward that is unavailable leaves every prompt flat
            break
        draws += 1
        meter.lap("score")
        apart = replace(world, seed=seed_of(world.seed, f"refill {number}", draws))
        first = 1 + max(rollout.group for rollout in scored.rollouts)
        made = [replace(rollout, group=first + rollout.group) for rollout in slots.rollouts(apart, prompts, number)]
        meter.generated(made)
        more = scored_and_penalised(made)
        scored, chosen = _joined(scored, more), _joined(chosen, _selected(slots, more))
    return RoundCompletions(scored, chosen, draws)


def _selected(slots: Slots, scored: Scored) -> Scored:
    for select in slots.select:
        scored = scored.take(select(scored))
    return scored


def _joined(earlier: Scored, other: Scored) -> Scored:
    """Join the completions of both, one after the other; watched values are counts, as no reward has a companion."""
    tokens: list[Tensor] | None = None
    if earlier.token_rewards is not None and other.token_rewards is not None:
        tokens = [*earlier.token_rewards, *other.token_rewards]
    counts = dict.fromkeys((*earlier.watched, *other.watched))
    return Scored(
        [*earlier.rollouts, *other.rollouts],
        torch.cat([earlier.rewards, other.rewards]),
        {name: torch.cat([values, other.components[name]]) for name, values in earlier.components.items()},
        {name: earlier.watched.get(name, 0) + other.watched.get(name, 0) for name in counts},
        tokens,
        {name: [*said, *other.reasons.get(name, ())] for name, said in earlier.reasons.items()},
    )
