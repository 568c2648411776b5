"""One round's fit: one or more optimiser steps of the policy on the chosen completions and their signal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from models.learner.optimiser import NotFinite
from models.method.learner import Learner
from models.method.readings import Readings
from models.method.rollout import Scored
from models.method.round_tokens import RoundTokens
from models.method.schedule import ScheduleSettings
from models.method.slots import Objective
from models.method.update import Fit
from models.method.watched import UpdateMetrics


def fit_round(
    learner: Learner,
    objective: Objective,
    chosen: Scored,
    advantage: Sequence[Tensor],
    settings: ScheduleSettings,
    longest: int,
    round_number: int = 0,
    readings: Readings | None = None,
) -> dict[str, float]:
    """Take the round's optimiser steps on `learner.policy`, in place.

    The policy is read without dropout, as its old log-probs and those of the reference are: with two different dropout
    masks ratios would differ from one, and tokens be clipped, although no weight has moved.

    Args:
        learner: policy, optimiser and reference.
        objective: the loss.
        chosen: the completions that are trained on, [completions]; at least one token of each.
        advantage: of their tokens, [completions] tensors of [tokens of it].
        settings: minibatches, epochs, normalisation, budget, optimiser.
        longest: tokens that a completion may have.
        round_number: from 0.
        readings: log-probs of the round's completions that were read already; None: none.

    Returns:
        Means over all tokens read: loss, entropy, gradient norm and the values that the objective watches; if steps may
        be skipped, how many were.

    Raises:
        UserError: the loss or a gradient is not finite, the weights have not moved since the last step; or memory runs
            out with the shortest possible rows.
    """
    learner.policy.eval()
    readings = readings or Readings(learner, settings.token_budget)
    reference = readings.reference(chosen.rollouts)
    several = settings.minibatches * settings.epochs > 1  # else the policy of the first step is the old one
    old = readings.policy(chosen.rollouts) if several else None
    seen = RoundTokens(chosen, advantage, readings, round_number)
    marks = objective.mark(seen)
    fit = Fit(
        learner=learner,
        objective=objective,
        chosen=chosen,
        advantage=advantage,
        settings=settings,
        readings=readings,
        longest=longest,
        progress=round_number / settings.rounds,
        old=old,
        reference=reference,
        marked=None if marks is None else seen.by_completion(marks),
    )
    watched = UpdateMetrics()
    for _ in range(settings.epochs):
        for rows in minibatches(chosen, settings.minibatches):
            try:
                watched.take_in(fit.update(rows))
            except NotFinite as error:  # curves and checkpoints count in rounds
                raise NotFinite(f"round {round_number + 1}, {error}") from error
    skipped = {"skipped_updates": float(watched.skipped)} if settings.skip_nonfinite else {}
    return {**watched.means(), **skipped}


def minibatches(chosen: Scored, count: int) -> Iterator[list[int]]:
    """Cut the completions into `count` parts by whole groups, [completions of a part] indices each."""
    groups = chosen.groups.tolist()
    number = max(groups) + 1
    for part in range(min(count, number)):
        yield [index for index, group in enumerate(groups) if group * min(count, number) // number == part]
