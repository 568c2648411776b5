"""What an objective sees beside the current log-probs: built from the round's completions, cut by cut."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.errors import UserError
from models.loop.distribution import Said
from models.loop.rollout import Rollout, Scored, TokenBatch, groups_of, trained_places, turn_numbers


def token_batch(
    chosen: Scored,
    indices: Sequence[int],
    advantage: Sequence[Tensor],
    said: Said,
    old: Sequence[Tensor] | None,
    reference: Sequence[Tensor] | None,
    progress: float,
    marked: Sequence[Tensor] | None = None,
) -> tuple[Tensor, TokenBatch]:
    """What the objective sees of the completions at `indices`, on the device of the policy.

    Args:
        chosen: the round's completions.
        indices: those of one packed row, in its order.
        advantage: of the tokens of each of the round's completions, [completions] tensors of [tokens of it].
        said: what the policy says of the row's tokens that are trained on; gradient flows.
        old: log-probs when the round began, [completions] tensors of [tokens of it]; None: the current ones are.
        reference: log-probs under the reference, likewise; None where there is none.
        progress: share of the run's rounds that are done.
        marked: tokens that the objective has singled out, likewise; None: none.

    Returns:
        Log-probs of the tokens that are trained on, and the rest of what there is about them.
    """
    log_prob = said.log_prob
    place, listed = log_prob.device, list(indices)
    rollouts = [chosen.rollouts[index] for index in listed]
    lengths = [len(rollout.completion) for rollout in rollouts]
    kept = trained_places(rollouts)
    if kept is not None:
        kept = kept.to(place)  # places: flags would make the device be waited for

    def trained(rows: Sequence[Tensor]) -> Tensor:
        joined = torch.cat(list(rows)).to(place)
        return joined if kept is None else joined[kept]

    before = log_prob.detach() if old is None else trained([old[index] for index in listed])
    batch = TokenBatch(
        advantage=trained([advantage[index] for index in listed]).to(log_prob),
        behaviour=_behaviour(rollouts, before),
        old=before,
        reference=None if reference is None else trained([reference[index] for index in listed]),
        completion=trained([torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))]),
        entropy=said.entropy,
        reward=chosen.rewards[listed].to(log_prob),
        components={name: values[listed].to(log_prob) for name, values in chosen.components.items()},
        group=groups_of(rollouts).to(place),
        origins=[rollout.origin for rollout in rollouts],
        progress=progress,
        marked=torch.zeros_like(before, dtype=torch.bool)
        if marked is None
        else trained([marked[index] for index in listed]),
        divergence=said.divergence,
        contrast_gap=said.contrast_gap,
        turn=trained([turn_numbers(rollout) for rollout in rollouts]) if any(r.turns for r in rollouts) else None,
    )
    return log_prob, batch


def _behaviour(rollouts: Sequence[Rollout], old: Tensor) -> Tensor:
    """What the sampler said of each trained token, [trained]; `old`, [trained], where there was no sampler."""
    rows = []
    for rollout, before in zip(rollouts, old.split([rollout.trained_tokens for rollout in rollouts]), strict=True):
        said = rollout.behaviour_log_probs
        if said is not None and rollout.trained is not None:
            said = said[torch.tensor(rollout.trained)]
        rows.append(before if said is None else said.to(before))
    return torch.cat(rows)


def pairs_of(chosen: Scored, indices: Sequence[int]) -> Tensor:
    """Places in `indices` of the better and the worse completion of each group, [pairs, 2], int64.

    Raises:
        UserError: a group does not hold exactly two completions of different worth.
    """
    groups = chosen.groups
    members: dict[int, list[int]] = {}
    for place, index in enumerate(indices):
        members.setdefault(int(groups[index]), []).append(place)
    pairs = []
    for held in members.values():
        worth = [float(chosen.rewards[indices[place]]) for place in held]
        if len(held) != 2 or worth[0] == worth[1]:
            problem = chosen.rollouts[indices[held[0]]].problem.id
            raise UserError(
                f"problem {problem}: an objective over pairs needs two completions of "
                f"different reward for each prompt, there are {len(held)} with rewards {worth}; select them first"
            )
        pairs.append(held if worth[0] > worth[1] else held[::-1])
    return torch.tensor(pairs, dtype=torch.long)
