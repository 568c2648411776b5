"""A checkpoint of several ranks: any number of ranks reads it without a change to any tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from models.base.ranks import ALONE, Ranks, whole
from models.learner.sharding import shard
from models.method.learner import Learner
from models.policies.checkpoint import load_checkpoint, newest_checkpoint, state_of, write_checkpoint
from tests.support.device_here import OF_A_PROCESSOR
from tests.support.rank_group import on_ranks
from tests.support.tiny_loops import SCHEDULE, new_learner

Whole = dict[str, Tensor]
COUNTS = (1, 2, 3)


def moved(ranks: Ranks, factor: float) -> Learner:
    """Return a learner after two updates. Its weights do not depend on the number of ranks, except for rounding."""
    learner = new_learner(SCHEDULE)
    with torch.no_grad():
        for weight in learner.policy.parameters():
            weight.mul_(factor)
    shard(learner.policy, ranks, learner.optimiser)
    for _ in range(2):
        for weight in learner.policy.parameters():
            weight.grad = weight.detach().square() - 0.1
        learner.optimiser.step()
    return learner


def tensors_of(learner: Learner) -> Whole:
    """Return the weights and moments, each gathered whole."""
    names = {id(weight): name for name, weight in learner.policy.named_parameters()}
    weights = {name: whole(weight.detach()) for name, weight in learner.policy.named_parameters()}
    moments = {
        f"{names[id(weight)]} {moment}": whole(value)
        for weight, state in learner.optimiser.state.items()
        for moment, value in state.items()
    }
    return {name: value.clone() for name, value in (weights | moments).items()}


def saved(ranks: Ranks, root: Path) -> Whole:
    learner = moved(ranks, 1.0)
    state = state_of({"policy": learner.policy}, {"policy": learner.optimiser}, ranks)
    write_checkpoint(root, 3, state, {"policy": 2}, ranks=ranks)
    return tensors_of(learner)


def reloaded(ranks: Ranks, roots: list[Path]) -> list[Whole]:
    read = []
    for root in roots:
        checkpoint = newest_checkpoint(root)
        assert checkpoint is not None and (checkpoint.round_number, checkpoint.updates) == (3, {"policy": 2})
        learner = moved(ranks, 0.5)
        load_checkpoint(checkpoint, {"policy": learner.policy}, {"policy": learner.optimiser})
        read.append(tensors_of(learner))
    return read


def on(count: int, work: Any, given: Any) -> Any:
    return on_ranks(count, work, given)[0] if count > 1 else work(ALONE, given)


@OF_A_PROCESSOR
@pytest.mark.thorough
def test_what_1_2_or_3_ranks_wrote_is_read_by_1_2_or_3_with_no_tensor_changed(tmp_path: Path) -> None:
    roots = {count: tmp_path / str(count) for count in COUNTS}
    written = {count: on(count, saved, root) for count, root in roots.items()}
    shapes = [value.shape[0] for name, value in written[1].items() if " " not in name]
    assert any(rows % 3 for rows in shapes), "parts of different sizes"
    fresh = tensors_of(moved(ALONE, 0.5))
    for reading in COUNTS:
        for writing, tensors in zip(COUNTS, on(reading, reloaded, list(roots.values())), strict=True):
            expected = written[writing]
            assert tensors.keys() == expected.keys()
            assert all(torch.equal(tensors[name], value) for name, value in expected.items())
            assert any(not torch.equal(tensors[name], value) for name, value in fresh.items()), "it was read at all"
