"""Self-certainty: the mean divergence from the uniform distribution over the policy's own tokens."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from models.method.episode import Turn
from models.method.rollout import Rollout
from models.parts.rewards.models.self_certainty import SelfCertainty
from tests.support.device_here import DEVICE
from tests.support.tiny_loops import SCHEDULE, new_learner
from tests.support.tiny_models import COMPLETIONS, SEQUENCES, scored, tiny_policy
from tests.support.tiny_resources import make_resources


def certain(policy: nn.Module, rollouts: list[Rollout], budget: int = 16384) -> list[float]:
    learner = new_learner(SCHEDULE)
    learner.policy = policy
    return SelfCertainty()(make_resources(learner=learner, token_budget=budget), rollouts).tolist()


def drawn() -> list[Rollout]:
    return list(scored([0.0] * 5, [1] * 5, sequences=SEQUENCES).rollouts)


def by_token(policy: nn.Module) -> list[torch.Tensor]:
    """Return the divergence from the uniform distribution at each token, computed without packing."""
    rows = []
    for prompt, completion in zip(SEQUENCES.prompts, COMPLETIONS, strict=True):
        with torch.no_grad():
            logits = policy(torch.tensor([[*prompt, *completion]], device=DEVICE)).logits[0, len(prompt) - 1 : -1]
        uniform = torch.full_like(logits, 1.0 / logits.shape[-1])
        rows.append((uniform * (uniform.log() - logits.log_softmax(-1))).sum(-1))
    return rows


@pytest.mark.parametrize("budget", [12, 16384])
def test_it_is_the_mean_divergence_from_the_uniform_distribution_however_rows_are_cut(budget: int) -> None:
    policy = tiny_policy(spread=2.0)
    expected = [float(row.mean()) for row in by_token(policy)]
    assert certain(policy, drawn(), budget) == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert min(expected) > 0


def test_a_policy_that_holds_all_tokens_equally_likely_is_not_certain_at_all() -> None:
    policy = tiny_policy()
    with torch.no_grad():
        policy.get_output_embeddings().weight.zero_()
    assert certain(policy, drawn()) == pytest.approx([0.0] * 5, abs=1e-6)
    assert math.isfinite(sum(certain(tiny_policy(spread=30.0), drawn())))


def test_tokens_of_the_environment_do_not_count() -> None:
    policy = tiny_policy(spread=2.0)
    place = max(range(5), key=lambda number: len(COMPLETIONS[number]))
    rollout, row = drawn()[place], by_token(policy)[place]
    length = len(COMPLETIONS[place])
    episode = replace(rollout, episode=replace(rollout.episode, turns=(Turn(0, 1), Turn(length - 1, length))))
    assert certain(policy, [episode]) == pytest.approx([float((row[0] + row[-1]) / 2)], rel=1e-4)
