"""What an objective sees beside the current log-probs: built from the round's completions, cut by cut."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from models.errors import UserError
from models.learner.log_probs import all_log_probs
from models.learner.packing import Sequences
from models.loop.learner import Learner
from models.loop.rollout import Scored, TokenBatch


def token_batch(
    chosen: Scored,
    indices: Sequence[int],
    advantage: Tensor,
    log_prob: Tensor,
    old: Sequence[Tensor] | None,
    reference: Sequence[Tensor] | None,
) -> TokenBatch:
    """What the objective sees of the completions at `indices`, on the device of `log_prob`.

    Args:
        chosen: the round's completions.
        indices: those of one packed row, in its order.
        advantage: of each of the round's completions, [completions].
        log_prob: of the row's completion tokens, [tokens].
        old: log-probs when the round began, [completions] tensors of [tokens of it]; None: the current ones are.
        reference: log-probs under the reference, likewise; None where there is none.
    """
    place = log_prob.device
    lengths = chosen.lengths[list(indices)]
    behaviour = [value for index in indices for value in chosen.rollouts[index].behaviour_log_probs]
    return TokenBatch(
        advantage=torch.repeat_interleave(advantage[list(indices)], lengths).to(log_prob),
        behaviour=torch.tensor(behaviour, dtype=log_prob.dtype, device=place),
        old=log_prob.detach() if old is None else torch.cat([old[index] for index in indices]),
        reference=None if reference is None else torch.cat([reference[index] for index in indices]).to(place),
        completion=torch.repeat_interleave(torch.arange(len(lengths)), lengths).to(place),
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


def policy_log_probs(learner: Learner, sequences: Sequences, token_budget: int) -> list[Tensor]:
    """Log-probs under the policy as it stands, [completions] tensors of [tokens of it], nats."""
    return _log_probs(learner, learner.policy, sequences, token_budget)


def reference_log_probs(learner: Learner, chosen: Scored, token_budget: int) -> list[Tensor] | None:
    """Log-probs under the reference, [completions] tensors of [tokens of it], nats; None where the recipe has none.

    Once a round, however many steps it takes. Rollouts that carry them (offline methods, see
    `models.learner.reference_cache`) are not read again.
    """
    known = [rollout.reference_log_probs for rollout in chosen.rollouts]
    if all(values is not None for values in known):
        return [torch.tensor(values) for values in known]
    if learner.reference is not None:
        return _log_probs(learner, learner.reference, chosen.sequences, token_budget)
    if learner.adapter_off is not None:
        with learner.adapter_off():
            return _log_probs(learner, learner.policy, chosen.sequences, token_budget)
    return None


def _log_probs(learner: Learner, model: nn.Module, sequences: Sequences, token_budget: int) -> list[Tensor]:
    return all_log_probs(
        model,
        sequences,
        distribution=learner.distribution,
        autocast=learner.autocast,
        token_budget=token_budget,
        setting="schedule.token_budget",
    )
