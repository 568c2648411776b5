"""Batches that objectives receive: their fields and order, and the removal of tokens that are not trained on."""

from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields, replace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from models.method.policy_outputs import PolicyOutputs
from models.method.rollout import Rollout, trained_places
from models.method.scored import Scored
from models.method.token_batch import TokenBatch, token_batch
from tests.support.tiny_models import COMPLETIONS, SEQUENCES, each_token, scored

ADVANTAGE = torch.tensor([1.0, -1.0, 0.5, -0.25, 2.0], dtype=torch.float64)


def row_of(
    indices: Sequence[int], trained: Callable[[Rollout], tuple[bool, ...]] | None = None, progress: float = 0.25
) -> tuple[Tensor, TokenBatch]:
    """Return the log-probs and the batch of a row of some completions. Every token has a different log-prob."""
    chosen = scored(ADVANTAGE, [2, 3], {"style": 2 * ADVANTAGE}, SEQUENCES)
    if trained is not None:
        chosen = replace(chosen, rollouts=[replace(rollout, trained=trained(rollout)) for rollout in chosen.rollouts])
    count = sum(len(COMPLETIONS[index]) for index in indices)
    log_prob = -torch.arange(1.0, count + 1, dtype=torch.float64)
    if (kept := trained_places([chosen.rollouts[index] for index in indices])) is not None:
        log_prob = log_prob[kept]
    return token_batch(
        chosen, indices, each_token(ADVANTAGE, chosen), PolicyOutputs(log_prob, -log_prob), None, None, progress
    )


def test_what_the_loop_always_knows_cannot_be_left_out() -> None:
    optional = {item.name for item in fields(TokenBatch) if item.default is not MISSING}
    assert optional == {"pairs", "divergence", "contrast_gap", "turn"}  # only some objectives need these
    with pytest.raises(TypeError, match=r"entropy.*reward.*components.*group.*origins.*progress"):
        cast(Any, TokenBatch)(*[torch.zeros(1)] * 3, None, torch.zeros(1, dtype=torch.long))
    with pytest.raises(TypeError, match=r"components.*watched"):
        cast(Any, Scored)([], torch.zeros(0))


def test_a_row_knows_worth_group_and_origin_of_its_completions_in_its_own_order() -> None:
    _, batch = row_of([4, 0, 3])
    assert batch.reward.tolist() == batch.worth("total").tolist() == [2.0, 1.0, -0.25]
    assert batch.worth("style").tolist() == [4.0, 2.0, -0.5]
    assert batch.group.tolist() == [0, 1, 0] and list(batch.origins) == ["policy"] * 3
    assert batch.progress == 0.25 and batch.pairs is None and batch.reference is None
    lengths = [len(COMPLETIONS[index]) for index in (4, 0, 3)]
    assert batch.lengths.tolist() == lengths
    assert batch.advantage.tolist() == [2.0] * lengths[0] + [1.0] * lengths[1] + [-0.25] * lengths[2]


def test_tokens_that_are_not_trained_on_leave_every_list_of_tokens_alike() -> None:
    log_prob, batch = row_of([1, 3], trained=lambda rollout: (False,) + (True,) * (len(rollout.completion) - 1))
    kept = [-2.0, -3.0, -4.0, -6.0, -7.0, -8.0, -9.0, -10.0]
    assert log_prob.tolist() == batch.old.tolist() == kept
    assert batch.entropy.tolist() == [-value for value in kept]
    assert batch.completion.tolist() == [0] * 3 + [1] * 5 and batch.lengths.tolist() == [3, 5]
    assert batch.behaviour.tolist() == [0.0] * 8  # `scored` sets the sampler's log-probs to zero
