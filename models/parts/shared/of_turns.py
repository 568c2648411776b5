"""Episodes by turn: the reward of each turn, the return from it on, and its value at each of its tokens."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from models.method.episode import Turn
from models.method.rollout import Rollout
from models.method.scored import Scored
from models.parts.shared.token_advantages import discounted_to_go


def turns_of(rollout: Rollout) -> tuple[Turn, ...]:
    """Return the policy's turns; a completion without recorded turns is one turn."""
    return rollout.episode.turns or (Turn(0, len(rollout.completion)),)


def state_of(rollout: Rollout, turn: Turn) -> str:
    """Return the state in which a turn was taken: the environment's name for it, or else all tokens before the turn."""
    if turn.state:
        return turn.state
    part, start = rollout, turn.start
    for part in rollout.episode.parts or (rollout,):
        if start < len(part.completion):
            break
        start -= len(part.completion)
    return repr((*part.problem.tokens, *part.completion[:start]))


def earned_by_turn(scored: Scored) -> list[Tensor]:
    """Return the reward of each turn, [completions] tensors of [turns of it]; their sum is that of the completion.

    A reward given token by token belongs to the turn that contains the token, or to the last turn before it; a reward
    of the whole completion belongs to its last turn.
    """
    earned = []
    for row, rollout in zip(scored.rewards_by_token(), scored.rollouts, strict=True):
        turns = turns_of(rollout)
        starts = [0, *(turn.start for turn in turns[1:]), len(row)]
        earned.append(torch.stack([row[low:high].sum() for low, high in pairwise(starts)]))
    return earned


def returns_to_go(earned: Sequence[Tensor], gamma: float) -> list[Tensor]:
    """Compute the return from each turn, a turn later discounted by `gamma`, [completions] tensors of [turns]."""
    return [discounted_to_go(row, gamma) for row in earned]


def at_tokens(values: Sequence[Tensor], rollouts: Sequence[Rollout]) -> list[Tensor]:
    """Spread a value per turn over the tokens of that turn, with zeros at the environment's tokens.

    The shape changes from [completions] tensors of [turns of it] to [completions] tensors of [tokens of it].
    """
    rows = []
    for row, rollout in zip(values, rollouts, strict=True):
        tokens = row.new_zeros(len(rollout.completion))
        for value, turn in zip(row, turns_of(rollout), strict=True):
            tokens[turn.start : turn.stop] = value
        rows.append(tokens)
    return rows


def less_the_others(values: Sequence[Tensor], labels: Sequence[Sequence[Hashable]], groups: Tensor) -> list[Tensor]:
    """Subtract from `values` the mean of the group's other episodes under the same label.

    Returns [completions] tensors of [turns].

    A turn whose label no other episode of the group has keeps its value. This is unbiased, because whether others have
    the label does not depend on the action of this turn. Setting such values to zero would make the gradient biased.

    Args:
        values: values of the turns, [completions] tensors of [turns of it].
        labels: keys that are equal for alike turns, [completions][turns of it].
        groups: group of each episode, [completions].
    """
    counts = [len(row) for row in values]
    members = torch.repeat_interleave(torch.arange(len(values)), torch.tensor(counts))
    names = [name for of_episode in labels for name in of_episode]
    alike = _numbers([(groups[member].item(), name) for member, name in zip(members.tolist(), names, strict=True)])
    mine = _numbers(list(zip(members.tolist(), names, strict=True)))
    flat = torch.cat(list(values)).double()
    total = _sums(flat, alike) - _sums(flat, mine)
    others = _sums(torch.ones_like(flat), alike) - _sums(torch.ones_like(flat), mine)
    baseline = torch.where(others > 0, total / others.clamp(min=1), 0.0)
    return [row.to(values[0]) for row in (flat - baseline).split(counts)]


def _numbers(names: Sequence[Hashable]) -> Tensor:
    """Give equal names equal numbers, [names], int64."""
    numbers: dict[Hashable, int] = {}
    return torch.tensor([numbers.setdefault(name, len(numbers)) for name in names], dtype=torch.long)


def _sums(values: Tensor, numbers: Tensor) -> Tensor:
    """Return the sum of `values` over each number, repeated at all of its places, [values]."""
    total = torch.zeros(len(values), dtype=values.dtype).index_add_(0, numbers, values)
    return total[numbers]
