"""Rules for completions that were cut at the limit of tokens: a verifier counts them as wrong.

`#### 4` may be the beginning of `#### 42`. So a verifier counts every cut completion as wrong, and a learned reward
finds none of them better than the worst of its round (see each reward). In addition a recipe has one of three rules:

    wrong           no further effect
    masked          they leave the loss and stay in their group's baseline ("Overlong Filtering", DAPO, arXiv
                    2503.14476, section 3.4: the loss of truncated samples is masked)
    soft_penalty    the last tokens before the limit cost, the more of them the more (its formula 13, "Soft Overlong
                    Punishment", added to the reward of correctness)

                         0                                   |y| <= L_max - L_cache
                         ((L_max - L_cache) - |y|) / L_cache   up to L_max
                        -1                                   beyond

The penalty is a function of the completion's length alone, whatever its origin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor

from models.base.bounds import Positive
from models.method.rollout import Rollout
from models.method.scored import Scored

LABEL = "overlong"
"""Name of the penalty among the components of the reward."""


@dataclass(frozen=True, kw_only=True)
class TruncationSettings:
    """The rule for completions that were cut. Set under `truncated:`."""

    rule: Literal["wrong", "masked", "soft_penalty"] = "wrong"
    """Rule for completions that were cut: no further effect, they leave the loss, or their last tokens cost."""
    last_tokens: Positive | None = None
    """For soft_penalty: number of last tokens before the limit that are penalised (L_cache); None: a fifth of
    rollouts.max_tokens, as in the paper (4,096 of 20,480)."""
    weight: PositiveFloat = 1.0
    """Weight of the whole penalty. The paper's answers have rewards 1 and -1; for 1 and 0, 0.5 is equivalent."""

    def __post_init__(self) -> None:
        """Refuse settings that would have no effect."""
        if self.rule != "soft_penalty" and (self.last_tokens is not None or self.weight != 1.0):
            raise ValueError(f"last_tokens and weight are for rule soft_penalty, but rule is {self.rule}")

    def penalised(self, scored: Scored, limit: int) -> Scored:
        """Return `scored` with the soft penalty as one more component of the reward, if that is the rule.

        Args:
            scored: the round's completions with their rewards.
            limit: tokens that a completion may have (L_max).
        """
        if self.rule != "soft_penalty":
            return scored
        values = overlong_penalty(scored.rollouts, limit, self.last_tokens or max(1, limit // 5))
        return replace(
            scored,
            rewards=scored.rewards + self.weight * values,
            components={**scored.components, LABEL: values},
        )

    def to_train_on(self, chosen: Scored) -> Tensor:
        """Return the indices of the completions to train on, [kept]; without the cut ones if the rule is masked."""
        trained = chosen.trained
        if self.rule != "masked":
            return trained
        ended = [chosen.rollouts[index].finished for index in trained.tolist()]
        return trained[torch.tensor(ended, dtype=torch.bool)]


WRONG = TruncationSettings()
"""The default rule of a recipe."""


def worst_where_cut(values: Tensor, rollouts: Sequence[Rollout]) -> Tensor:
    """Return `values`, [completions], with the smallest of them for every cut completion; non-finite values stay."""
    ended = torch.tensor([rollout.finished for rollout in rollouts], device=values.device)
    known = values.isfinite()
    return values if ended.all() or not known.any() else torch.where(ended | ~known, values, values[known].min())


def overlong_penalty(rollouts: Sequence[Rollout], limit: int, last_tokens: int) -> Tensor:
    """Compute the soft overlong penalty of each completion (DAPO's formula 13), [completions], in [-1, 0].

    Args:
        rollouts: the completions; a beginning that the policy did not write counts for the length too, and the
            environment's tokens do not.
        limit: tokens that an answer may have (L_max).
        last_tokens: how many before that are penalised (L_cache).
    """
    lengths = torch.tensor([rollout.source.begun + rollout.written_tokens for rollout in rollouts])
    return ((limit - last_tokens - lengths) / last_tokens).clamp(-1.0, 0.0)
