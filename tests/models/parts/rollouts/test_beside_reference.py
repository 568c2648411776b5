"""Samples of the reference in one group with those of the policy: their order, their log-probs, and their seeds."""

from collections.abc import Sequence
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from models.base.errors import UserError
from models.engines.engine import Generated, Sampling
from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.packing import Sequences
from models.method.learner import Learner
from models.method.problem import Problem
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.rollouts.beside_reference import BesideReference
from tests.support.tiny_models import PROMPTS, plain_log_probs, tiny_policy
from tests.support.tiny_resources import make_resources

PROBLEMS = [Problem(f"p{number}", "", "7", 1, tuple(prompt)) for number, prompt in enumerate(PROMPTS)]
OWN = Generated((5, 1), torch.tensor([-0.5, -0.25]), True)


class Engine:
    """An engine that returns the same completion for every prompt."""

    def generate(self, prompts: Sequence[tuple[int, ...]], sampling: Sampling, seed: int) -> list[list[Generated]]:
        return [[OWN] * sampling.samples for _ in prompts]


def resources(reference: nn.Module | None) -> RunResources:
    nothing: Any = None
    learner = Learner(tiny_policy(seed=0, spread=3.0), nothing, reference, None, None, MODEL_DISTRIBUTION)
    return make_resources(cast(Any, Engine()), learner=learner)


def log_probs_of(rollout: Rollout) -> Tensor:
    assert rollout.behaviour_log_probs is not None
    return rollout.behaviour_log_probs


def test_every_group_holds_the_engines_completions_and_then_the_references() -> None:
    rollouts = BesideReference(group_size=2, references=3, max_tokens=6)(resources(tiny_policy(seed=1)), PROBLEMS, 0)
    assert [rollout.group for rollout in rollouts] == [number for number in range(5) for _ in range(5)]
    assert [rollout.source.origin for rollout in rollouts] == (["policy"] * 2 + ["reference"] * 3) * 5
    assert all(rollout.problem is PROBLEMS[rollout.group] and rollout.trained is None for rollout in rollouts)
    assert all(rollout.completion == OWN.tokens for rollout in rollouts if rollout.source.origin == "policy")


def test_what_is_noted_of_the_references_completions_is_its_own_log_probs_not_the_policys() -> None:
    reference = tiny_policy(seed=1, spread=3.0)
    here = resources(reference)
    drawn = [
        rollout
        for rollout in BesideReference(references=2, max_tokens=6)(here, PROBLEMS, 0)
        if rollout.source.origin == "reference"
    ]
    sequences = Sequences([rollout.problem.tokens for rollout in drawn], [rollout.completion for rollout in drawn])
    noted = torch.cat([log_probs_of(rollout) for rollout in drawn]).double()
    torch.testing.assert_close(
        noted, torch.cat(plain_log_probs(reference, sequences)).detach().cpu(), rtol=0, atol=1e-5
    )
    under_policy = torch.cat(plain_log_probs(here.learner.policy, sequences)).detach().cpu()
    assert (noted - under_policy).abs().max() > 0.1


def test_a_round_can_be_repeated_and_another_round_is_another() -> None:
    source, here = BesideReference(references=4, max_tokens=6), resources(tiny_policy(seed=1, spread=3.0))
    first, again, next_round = (
        [rollout.completion for rollout in source(here, PROBLEMS, number) if rollout.source.origin == "reference"]
        for number in (0, 0, 1)
    )
    assert first == again and first != next_round


def test_without_a_reference_it_is_refused() -> None:
    with pytest.raises(UserError, match="reference"):
        BesideReference()(resources(None), PROBLEMS, 0)
