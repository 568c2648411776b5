"""Inputs of an objective for one packed row, in addition to the current log-probs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from models.base.errors import UserError
from models.learner.packing import PerToken
from models.learner.upload import all_to_device, to_device
from models.method.policy_outputs import PolicyOutputs
from models.method.problem import Origin
from models.method.rollout import Rollout, groups_of, trained_places, turn_numbers
from models.method.scored import Scored, reward_called


@dataclass(frozen=True)
class TokenBatch:
    """Inputs of an objective in addition to the current log-probs, for the trained tokens of a packed row."""

    advantage: Tensor
    """Advantage of each token, [tokens]."""
    behaviour: Tensor
    """Log-probs that the engine recorded when it sampled (mu), [tokens], nats; `old` if they are unknown."""
    old: Tensor
    """Log-probs under the learner's policy when the round began, [tokens], nats, no gradient."""
    reference: Tensor | None
    """Log-probs under the reference, [tokens], nats; None if the recipe has none."""
    completion: Tensor
    """Index in this batch of the completion that a token belongs to, [tokens], from 0."""
    entropy: Tensor
    """Entropy of the policy's distribution at each token, [tokens], nats; gradient flows."""
    reward: Tensor
    """Weighted sum of the reward's components, [completions]."""
    components: Mapping[str, Tensor]
    """Label -> reward component before weighting, [completions]."""
    group: Tensor
    """Group of each completion, numbered from 0 in this batch, [completions]."""
    origins: Sequence[Origin]
    """Origin of each completion, [completions]."""
    progress: float
    """Share of the run's rounds that are done, in [0, 1)."""
    marked: Tensor
    """Whether the objective has marked the token among all of the round (`Objective.mark`), [tokens], bool."""
    divergence: Tensor | None = None
    """Divergence of the policy's whole distribution from the judge's (`Divergence.judge`) at each token, [tokens],
    nats; gradient flows. None unless the objective requests it."""
    contrast_gap: Tensor | None = None
    """Sum over the vocabulary of |judge - contrast|, [tokens], in [0, 2]; None unless the objective's divergence sets
    `extrapolation`."""
    pairs: Tensor | None = None
    """Indices of the better and the worse completion of each pair, [pairs, 2]; None unless the level is pair."""
    turn: Tensor | None = None
    """Turn of the episode that a token belongs to, from 0, [tokens], int64; None: every completion is one turn."""

    @property
    def completions(self) -> int:
        """Number of completions in the batch."""
        return int(self.completion.max()) + 1 if self.completion.numel() else 0

    @property
    def lengths(self) -> Tensor:
        """Number of trained tokens of each completion, [completions], int64."""
        return torch.bincount(self.completion, minlength=self.completions)

    def from_origins(self, *origins: Origin) -> Tensor:
        """Return whether each completion has one of `origins`, [completions], bool."""
        return to_device(torch.tensor([origin in origins for origin in self.origins]), self.completion.device)

    def worth(self, by: str) -> Tensor:
        """Return the reward component `by`, or the weighted sum if `by` is total, [completions].

        Raises:
            UserError: no reward is called `by`.
        """
        return reward_called(by, self.reward, self.components, "objective.by")

    def sum_by_completion(self, values: Tensor) -> Tensor:
        """Sum token values by completion, [tokens] -> [completions]; gradient flows."""
        return values.new_zeros(self.completions).index_add(0, self.completion, values)

    def mean_by_completion(self, values: Tensor) -> Tensor:
        """Average token values by completion, [tokens] -> [completions]; gradient flows."""
        return self.sum_by_completion(values) / self.lengths

    def sum_by_group(self, values: Tensor) -> Tensor:
        """Sum over the completions of each group, [completions] -> [groups]; gradient flows."""
        groups = int(self.group.max()) + 1
        return torch.zeros(groups, dtype=values.dtype, device=values.device).index_add(0, self.group, values)

    def mean_by_group(self, values: Tensor) -> Tensor:
        """Average over the completions of each group, [completions] -> [groups]; gradient flows."""
        return self.sum_by_group(values) / self.sum_by_group(torch.ones_like(values))

    def of_group(self, values: Tensor) -> Tensor:
        """Repeat each group's value for each of its completions, [groups] -> [completions]."""
        return values[self.group]

    def by_pair(self, values: Tensor) -> Tensor:
        """Sum token values over both completions of each pair, [tokens] -> [pairs, 2]; gradient flows."""
        assert self.pairs is not None, "only objectives over pairs see pairs"
        return self.sum_by_completion(values)[self.pairs]


def token_batch(
    chosen: Scored,
    indices: Sequence[int],
    advantage: PerToken,
    outputs: PolicyOutputs,
    old: PerToken | None,
    reference: PerToken | None,
    progress: float,
    marked: PerToken | None = None,
) -> tuple[Tensor, TokenBatch]:
    """Build the objective's inputs for the completions at `indices`, on the device of the policy.

    Args:
        chosen: the round's completions.
        indices: those of one packed row, in its order.
        advantage: advantage of the tokens of each of the round's completions, [completions] tensors of [tokens of it].
        outputs: log-probs and entropies under the policy of the row's tokens that are trained on; gradient flows.
        old: log-probs when the round began, [completions] tensors of [tokens of it]; None: the current ones are used.
        reference: log-probs under the reference, likewise; None if there is none.
        progress: share of the run's rounds that are done.
        marked: tokens that the objective has marked, likewise; None: none.

    Returns:
        Log-probs of the tokens that are trained on, and the other inputs.
    """
    log_prob = outputs.log_prob
    place, dtype, listed = log_prob.device, log_prob.dtype, list(indices)
    rollouts = [chosen.rollouts[index] for index in listed]
    lengths = [len(rollout.completion) for rollout in rollouts]
    kept = trained_places(rollouts)

    def trained(rows: PerToken, dtype: torch.dtype | None = None) -> Tensor:
        joined = torch.cat(list(rows))
        if kept is not None:
            joined = joined[to_device(kept, joined.device)]  # places: flags would force a device sync
        return to_device(joined, place, dtype)

    old_log_probs = log_prob.detach() if old is None else trained([old[index] for index in listed])
    batch = TokenBatch(
        advantage=trained([advantage[index] for index in listed], dtype),
        behaviour=_behaviour(rollouts, old_log_probs),
        old=old_log_probs,
        reference=None if reference is None else trained([reference[index] for index in listed]),
        completion=trained([torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))]),
        entropy=outputs.entropy,
        reward=to_device(chosen.rewards[listed], place, dtype),
        components={name: to_device(values[listed], place, dtype) for name, values in chosen.components.items()},
        group=to_device(groups_of(rollouts), place),
        origins=[rollout.source.origin for rollout in rollouts],
        progress=progress,
        marked=torch.zeros_like(old_log_probs, dtype=torch.bool)
        if marked is None
        else trained([marked[index] for index in listed]),
        divergence=outputs.divergence,
        contrast_gap=outputs.contrast_gap,
        turn=trained([turn_numbers(rollout) for rollout in rollouts])
        if any(r.episode.turns for r in rollouts)
        else None,
    )
    return log_prob, batch


def _behaviour(rollouts: Sequence[Rollout], old: Tensor) -> Tensor:
    """Return the sampler's log-prob of each trained token, [trained]; `old`, [trained], if there was no sampler."""
    recorded = []
    for rollout in rollouts:
        log_probs = rollout.behaviour_log_probs
        if log_probs is not None:
            recorded.append(
                (log_probs if rollout.trained is None else log_probs[torch.tensor(rollout.trained)]).to(old.dtype)
            )
    device_log_probs = iter(all_to_device(recorded, old.device))
    rows = zip(rollouts, old.split([rollout.trained_tokens for rollout in rollouts]), strict=True)
    return torch.cat(
        [before if rollout.behaviour_log_probs is None else next(device_log_probs) for rollout, before in rows]
    )


def pairs_of(chosen: Scored, indices: Sequence[int]) -> Tensor:
    """Return the positions in `indices` of the better and worse completion of each group, [pairs, 2], int64.

    Raises:
        UserError: a group does not have exactly two completions of different reward.
    """
    groups = chosen.groups
    members: dict[int, list[int]] = {}
    for place, index in enumerate(indices):
        members.setdefault(int(groups[index]), []).append(place)
    pairs = []
    for places in members.values():
        worth = [float(chosen.rewards[indices[place]]) for place in places]
        if len(places) != 2 or worth[0] == worth[1]:
            problem = chosen.rollouts[indices[places[0]]].problem.id
            raise UserError(
                f"problem {problem}: an objective over pairs needs two completions of "
                f"different reward for each prompt, there are {len(places)} with rewards {worth}; select them first"
            )
        pairs.append(places if worth[0] > worth[1] else places[::-1])
    return torch.tensor(pairs, dtype=torch.long)
