"""The self-critic's objective: its two stages, each compared with its formula."""

import torch
from torch.nn import functional

from models.method.token_batch import TokenBatch
from models.parts.objective.self_critic import SelfCritic
from tests.support.tiny_batches import gradient_of, make_batch, numbers


def test_the_stages_take_turns() -> None:
    objective = SelfCritic(cycles=2)
    assert [objective._critic(done) for done in (0.0, 0.2, 0.25, 0.49, 0.5, 0.74, 0.75, 0.99)] == [
        False, False, True, True, False, False, True, True
    ]  # fmt: skip


def batch(progress: float) -> TokenBatch:
    """Return two groups of two completions, five tokens in all. The rewards of the second group are equal."""
    return make_batch(
        numbers(1.0, 1.0, -1.0, 0.5, -0.5),
        None,
        numbers(-1.0, -0.5, -2.0, -0.7, -0.9),
        numbers(-1.2, -0.4, -1.5, -0.8, -0.9),
        torch.tensor([0, 0, 1, 2, 3]),
        reward=numbers(1.0, 0.0, 0.5, 0.5),
        group=torch.tensor([0, 0, 1, 1]),
        progress=progress,
    )


NOW = numbers(-0.9, -0.6, -1.0, -0.7, -1.4)


def test_the_first_stage_is_the_clipped_surrogate_over_the_tokens_of_each_group() -> None:
    seen = batch(0.0)
    ratio = torch.exp(NOW - seen.old)
    surrogate = torch.minimum(ratio * seen.advantage, ratio.clamp(0.8, 1.2) * seen.advantage)
    expected = torch.stack([-surrogate[:3].mean(), -surrogate[3:].mean()])
    loss, watched = SelfCritic(cycles=1, clip_range=0.2)(NOW, seen)
    torch.testing.assert_close(loss, expected)
    assert watched["self_critic"].tolist() == [0.0, 0.0]


def test_the_second_stage_is_dpo_of_the_groups_best_and_worst_and_a_flat_group_has_none() -> None:
    seen = batch(0.5)
    assert seen.reference is not None
    best, worst = (NOW - seen.reference)[:2].sum(), (NOW - seen.reference)[2]
    expected = torch.stack([-functional.logsigmoid(0.1 * (best - worst)), torch.zeros((), dtype=torch.float64)])
    loss, watched = SelfCritic(cycles=1, beta=0.1)(NOW, seen)
    torch.testing.assert_close(loss, expected)
    assert watched["self_critic"].tolist() == [1.0, 1.0]
    gradient = gradient_of(SelfCritic(cycles=1), NOW, seen)
    assert gradient[0] < 0 < gradient[2] and gradient[3] == gradient[4] == 0
