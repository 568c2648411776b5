"""Call of a reward with a time limit and retries; values that are missing or not finite are replaced.

A reward fails for a round if it takes too long, raises, or returns a wrong number of values; it fails for a completion
if its value is not finite. Only a `UserError` is passed on: it means that the recipe is wrong, which a second call
cannot change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from models.base.errors import UserError, shortened
from models.base.source_code import code_file
from models.base.time_limit import within
from models.base.user_code.contain import contained
from models.method.resources import RunResources
from models.method.reward import Blend, ReasonedReward, Reward, TokenReward
from models.method.rollout import Rollout
from models.method.scored import sum_of_tokens

EMPTY: Mapping[str, Tensor] = {}
"""Components of the rewards before the first one: none."""


@dataclass(frozen=True)
class RewardOutput:
    """Result of a call of a reward for the completions of a round."""

    values: Tensor
    """Values before weighting, [completions], all of them finite."""
    tokens: list[Tensor] | None
    """Values per token of a `TokenReward`, [completions] tensors of [tokens of it]; None for others."""
    failures: int = 0
    """Number of completions that got `limits.value` because their value was missing."""
    reason: str = ""
    """Reason for the failures, in one line; empty if there are none."""
    reasons: Sequence[str] | None = None
    """Reasons of a reward that explains each value, [completions]."""
    watched: Mapping[str, float] = field(default_factory=dict)
    """Further metrics of a reward that explains each value, by name."""


def call_reward(
    resources: RunResources, reward: Reward, rollouts: Sequence[Rollout], components: Mapping[str, Tensor] = EMPTY
) -> RewardOutput:
    """Call `reward` within its `limits`; `components` are the rewards before it, label -> [completions].

    A repeated call begins with the same state of torch's random generator as the first one, so that a temporary failure
    does not change the run.

    Raises:
        UserError: the reward finds that the recipe is wrong.
    """
    ranks = resources.learner.ranks
    if ranks.count > 1 and reward.reads_learner:  # in step: no rank may give up or try again by itself
        given = _ask(resources, reward, rollouts, components)
        return _filled(given, reward.limits.value, given.reason)
    return ranks.from_first(lambda: _patiently(resources, reward, rollouts, components))


def _patiently(
    resources: RunResources, reward: Reward, rollouts: Sequence[Rollout], components: Mapping[str, Tensor]
) -> RewardOutput:
    limits, random = reward.limits, torch.get_rng_state()
    best, reason, file = _nothing(reward, rollouts), "", code_file(reward)
    for attempt in range(limits.retries + 1):
        if attempt:
            torch.set_rng_state(random)
        try:
            given = contained(
                file, lambda: within(limits.seconds, lambda: _ask(resources, reward, rollouts, components))
            )
        except UserError:
            raise
        except Exception as error:  # any exception of user code
            reason = shortened(f"{type(error).__name__}: {error}", 200)
            continue
        if given.failures == 0:
            return given
        if given.failures < best.failures:
            best, reason = given, given.reason
    return _filled(best, limits.value, reason)


def _nothing(reward: Reward, rollouts: Sequence[Rollout]) -> RewardOutput:
    rows = [torch.full((len(rollout.completion),), torch.nan) for rollout in rollouts]
    values = torch.full((len(rollouts),), torch.nan)
    return RewardOutput(values, rows if isinstance(reward, TokenReward) else None, len(rollouts))


def _ask(
    resources: RunResources, reward: Reward, rollouts: Sequence[Rollout], components: Mapping[str, Tensor]
) -> RewardOutput:
    """Return values as the reward gives them; `failures` are those that are not finite.

    Raises:
        ValueError: not one for each completion, or not one for each of its tokens.
    """
    rows: list[Tensor] | None = None
    reasons: Sequence[str] | None = None
    watched: Mapping[str, float] = {}
    if isinstance(reward, ReasonedReward):
        made = reward.reasoned(resources, rollouts)
        values, reasons, watched = made.values, made.reasons, made.watched
        if len(reasons) != len(rollouts):
            raise ValueError(f"gave {len(reasons)} reasons for {len(rollouts)} completions")
    elif isinstance(reward, TokenReward):
        rows = reward.tokens(resources, rollouts)
        if [len(row) for row in rows] != [len(rollout.completion) for rollout in rollouts]:
            raise ValueError("did not give one value for each token of each completion")
        values = sum_of_tokens(rows)
    elif isinstance(reward, Blend):
        values, watched = reward.blend(resources, rollouts, components), reward.watched(rollouts, components)
    else:
        values = reward(resources, rollouts)
    if values.shape != (len(rollouts),):
        raise ValueError(f"gave {tuple(values.shape)} values for {len(rollouts)} completions")
    missing = (~torch.isfinite(values)).nonzero().flatten().tolist()
    if not missing:
        return RewardOutput(values, rows, reasons=reasons, watched=watched)
    why = f"no finite value for problem {rollouts[missing[0]].problem.id}"
    return RewardOutput(values, rows, len(missing), why, reasons, watched)


def _filled(given: RewardOutput, value: float, reason: str) -> RewardOutput:
    """Return `given` with `value` for each missing value; for a reward by token it is placed at the last token."""
    missing = ~torch.isfinite(given.values)
    rows = given.tokens
    if rows is not None:
        rows = [_at_the_end(row, value) if gone else row for row, gone in zip(rows, missing.tolist(), strict=True)]
    return replace(given, values=torch.where(missing, value, given.values), tokens=rows, reason=reason)


def _at_the_end(row: Tensor, value: float) -> Tensor:
    filled = torch.zeros_like(row)
    filled[-1:] = value
    return filled
