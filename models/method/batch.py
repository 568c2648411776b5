"""Inputs of an objective in addition to the current log-probs: built from the round's completions, row by row."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.base.errors import UserError
from models.learner.upload import all_to_device, to_device
from models.method.distribution import PolicyOutputs
from models.method.rollout import Rollout, Scored, TokenBatch, groups_of, trained_places, turn_numbers


def token_batch(
    chosen: Scored,
    indices: Sequence[int],
    advantage: Sequence[Tensor],
    said: PolicyOutputs,
    old: Sequence[Tensor] | None,
    reference: Sequence[Tensor] | None,
    progress: float,
    marked: Sequence[Tensor] | None = None,
) -> tuple[Tensor, TokenBatch]:
    """Build the objective's inputs for the completions at `indices`, on the device of the policy.

    Args:
        chosen: the round's completions.
        indices: those of one packed row, in its order.
        advantage: of the tokens of each of the round's completions, [completions] tensors of [tokens of it].
        said: log-probs and entropies under the policy of the row's tokens that are trained on; gradient flows.
        old: log-probs when the round began, [completions] tensors of [tokens of it]; None: the current ones are used.
        reference: log-probs under the reference, likewise; None if there is none.
        progress: share of the run's rounds that are done.
        marked: tokens that the objective has marked, likewise; None: none.

    Returns:
        Log-probs of the tokens that are trained on, and the other inputs.
    """
    log_prob = said.log_prob
    place, dtype, listed = log_prob.device, log_prob.dtype, list(indices)
    rollouts = [chosen.rollouts[index] for index in listed]
    lengths = [len(rollout.completion) for rollout in rollouts]
    kept = trained_places(rollouts)

    def trained(rows: Sequence[Tensor], dtype: torch.dtype | None = None) -> Tensor:
        joined = torch.cat(list(rows))
        if kept is not None:
            joined = joined[to_device(kept, joined.device)]  # places: flags would force a device sync
        return to_device(joined, place, dtype)

    before = log_prob.detach() if old is None else trained([old[index] for index in listed])
    batch = TokenBatch(
        advantage=trained([advantage[index] for index in listed], dtype),
        behaviour=_behaviour(rollouts, before),
        old=before,
        reference=None if reference is None else trained([reference[index] for index in listed]),
        completion=trained([torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))]),
        entropy=said.entropy,
        reward=to_device(chosen.rewards[listed], place, dtype),
        components={name: to_device(values[listed], place, dtype) for name, values in chosen.components.items()},
        group=to_device(groups_of(rollouts), place),
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
    """Return the sampler's log-prob of each trained token, [trained]; `old`, [trained], if there was no sampler."""
    known = []
    for rollout in rollouts:
        said = rollout.behaviour_log_probs
        if said is not None:
            known.append((said if rollout.trained is None else said[torch.tensor(rollout.trained)]).to(old.dtype))
    sent = iter(all_to_device(known, old.device))
    rows = zip(rollouts, old.split([rollout.trained_tokens for rollout in rollouts]), strict=True)
    return torch.cat([before if rollout.behaviour_log_probs is None else next(sent) for rollout, before in rows])


def pairs_of(chosen: Scored, indices: Sequence[int]) -> Tensor:
    """Return places in `indices` of the better and the worse completion of each group, [pairs, 2], int64.

    Raises:
        UserError: a group does not have exactly two completions of different reward.
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
