"""What an objective sees beside the current log-probs: built from the round's completions, cut by cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from models.errors import UserError
from models.loop.distribution import Said
from models.loop.rollout import Rollout, Scored, TokenBatch, groups_of


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
        said: what the policy says of the row's completion tokens; gradient flows.
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
    lengths = chosen.lengths[listed]
    before = log_prob.detach() if old is None else torch.cat([old[index] for index in listed])
    batch = TokenBatch(
        advantage=torch.cat([advantage[index] for index in listed]).to(log_prob),
        behaviour=_behaviour(rollouts, before.split(lengths.tolist())),
        old=before,
        reference=None if reference is None else torch.cat([reference[index].to(place) for index in listed]),
        completion=torch.repeat_interleave(torch.arange(len(lengths)), lengths).to(place),
        entropy=said.entropy,
        reward=chosen.rewards[listed].to(log_prob),
        components={name: values[listed].to(log_prob) for name, values in chosen.components.items()},
        group=groups_of(rollouts).to(place),
        origins=[rollout.origin for rollout in rollouts],
        progress=progress,
        marked=torch.zeros_like(before, dtype=torch.bool)
        if marked is None
        else torch.cat([marked[index] for index in listed]).to(place),
        divergence=said.divergence,
        contrast_gap=said.contrast_gap,
    )
    return (log_prob, batch) if all(r.trained is None for r in rollouts) else _trained(log_prob, batch, rollouts)


def _behaviour(rollouts: Sequence[Rollout], old: Sequence[Tensor]) -> Tensor:
    """What the sampler said of each token, [tokens]; `old`, [completions] tensors, where there was no sampler."""
    said = [rollout.behaviour_log_probs for rollout in rollouts]
    return torch.cat([before if row is None else row.to(before) for row, before in zip(said, old, strict=True)])


def _trained(log_prob: Tensor, batch: TokenBatch, rollouts: Sequence[Rollout]) -> tuple[Tensor, TokenBatch]:
    """Only the tokens that the policy is to learn from."""
    flags = [flag for rollout in rollouts for flag in rollout.trained or (True,) * len(rollout.completion)]
    kept = (
        torch.tensor(flags).nonzero().squeeze(1).to(log_prob.device)
    )  # places: flags would make the device be waited for
    reference = batch.reference
    return log_prob[kept], replace(
        batch,
        advantage=batch.advantage[kept],
        behaviour=batch.behaviour[kept],
        old=batch.old[kept],
        reference=None if reference is None else reference[kept],
        completion=batch.completion[kept],
        entropy=batch.entropy[kept],
        marked=batch.marked[kept],
        divergence=None if batch.divergence is None else batch.divergence[kept],
        contrast_gap=None if batch.contrast_gap is None else batch.contrast_gap[kept],
    )


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
