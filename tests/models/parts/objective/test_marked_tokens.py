"""Losses that mark some tokens of a round (top entropy, Clip-Cov, KL-Cov): published formulas, marks and limits."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from models.method.token_batch import TokenBatch
from models.parts.objective.entropy_covariance import ClipCov, KlCov, covariance
from models.parts.objective.grpo import Grpo
from models.parts.objective.top_entropy import TopEntropy
from models.parts.shared.importance import ImportanceSettings
from tests.support.random_rounds import TOKENS, assert_same, mask, padded, random_round
from tests.support.tiny_batches import gradient_of, make_batch, numbers

SHARES = torch.full((TOKENS,), 1 / TOKENS, dtype=torch.float64)


class Whole:
    """An objective on a whole round as one batch, in which it has marked its tokens."""

    def __init__(self, objective: ImportanceSettings) -> None:
        self.objective, self.level = objective, objective.level

    def __call__(self, log_prob: Tensor, seen: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        tokens: Any = SimpleNamespace(advantage=seen.advantage, log_prob=seen.old, entropy=seen.entropy, round_number=0)
        marked = self.objective.mark(tokens)
        assert marked is not None
        return self.objective(log_prob, replace(seen, marked=marked))


def by_trl(low: float, high: float, share: float, ceiling: float) -> Callable[[Tensor, TokenBatch], Tensor]:
    """Return the loss of TRL 1.16 with `top_entropy_quantile` (loss_type="dapo", token_truncate)."""

    def loss(log_prob: Tensor, seen: TokenBatch) -> Tensor:
        held, advantage = mask(), padded(seen.advantage)
        entropies = padded(seen.entropy)
        kept = (entropies >= torch.quantile(seen.entropy, 1 - share)) & (held > 0)
        ratio = (padded(log_prob) - padded(seen.old)).exp()
        each = -torch.min(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage) * kept
        each = each * torch.clamp((padded(seen.old) - padded(seen.behaviour)).exp(), max=ceiling)
        return (each * held).sum() / held.sum()

    return loss


def kl_cov(share: float, pull: float) -> Callable[[Tensor, TokenBatch], Tensor]:
    """Return KL-Cov's loss in verl (compute_policy_loss_kl_cov), token mean, with covariances under the old policy."""

    def loss(log_prob: Tensor, seen: TokenBatch) -> Tensor:
        held, advantage = mask(), padded(seen.advantage)
        apart = padded(log_prob) - padded(seen.old)
        each = -advantage * apart.exp()
        parts = (seen.advantage - seen.advantage.mean()) * (seen.old - seen.old.mean())
        chosen = torch.zeros(TOKENS, dtype=torch.float64)
        chosen[torch.topk(parts, max(1, int(TOKENS * share))).indices] = 1.0
        return ((each + pull * apart.abs() * padded(chosen)) * held).sum() / held.sum()

    return loss


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_loss_at_the_forks_is_the_published_one(seed: int) -> None:
    objective = Whole(TopEntropy(share=0.4, importance_ceiling=1.2))
    assert_same(objective, by_trl(0.2, 0.2, 0.4, 1.2), seed, SHARES)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_loss_with_a_pull_at_high_covariances_is_the_published_one(seed: int) -> None:
    assert_same(Whole(KlCov(share=0.3, pull=0.7)), kl_cov(0.3, 0.7), seed, SHARES, gap=0.0)


def test_forks_are_those_of_highest_entropy_and_no_other_token_has_a_gradient() -> None:
    entropy = numbers(0.1, 2.0, 0.3, 1.5, 0.2)
    seen = make_batch(numbers(1.0, 1.0, 1.0, -1.0, 1.0), None, numbers(*[-1.0] * 5), entropy=entropy)
    objective = cast(Any, Whole(TopEntropy(share=0.4)))
    torch.testing.assert_close(gradient_of(objective, seen.old, seen), -numbers(0.0, 1.0, 0.0, -1.0, 0.0))
    assert objective(seen.old, seen)[1]["marked_share"].tolist() == [0.0, 1.0, 0.0, 1.0, 0.0]


def test_the_kl_stays_at_every_token() -> None:
    seen = make_batch(numbers(1.0, 1.0), None, numbers(-1.0, -1.0), numbers(-2.0, -2.0), entropy=numbers(1.0, 0.0))
    gradient = gradient_of(cast(Any, Whole(TopEntropy(share=0.5, kl=0.5, kl_estimator="k2"))), seen.old, seen)
    torch.testing.assert_close(gradient, numbers(-1.0 + 0.5, 0.5))


@pytest.mark.parametrize(
    ("objective", "plain"),
    [
        (TopEntropy(share=1.0), Grpo(kl=0.0)),
        (ClipCov(covariance_low=1e6, covariance_high=1e7), Grpo(kl=0.0, clip_low=1.0, clip_high=1.0)),
        (KlCov(pull=0.0), Grpo(kl=0.0, clip_low=None, clip_high=None)),
    ],
    ids=["all tokens are forks", "none is left out", "no pull"],
)
def test_at_its_limit_it_is_the_plain_surrogate(objective: ImportanceSettings, plain: Grpo) -> None:
    log_prob, seen = random_round(3)
    torch.testing.assert_close(
        gradient_of(cast(Any, Whole(objective)), log_prob, seen), gradient_of(plain, log_prob, seen)
    )
    assert isinstance(objective, ImportanceSettings)


def test_covariances_sum_to_the_covariance_and_rise_with_likely_tokens_of_high_advantage() -> None:
    advantage, log_prob = numbers(1.0, -1.0, 1.0, -1.0), numbers(-0.1, -0.1, -4.1, -4.1)
    parts = covariance(advantage, log_prob)
    torch.testing.assert_close(parts, numbers(2.0, -2.0, -2.0, 2.0))
    spread = torch.cov(torch.stack([advantage, numbers(-1.0, -2.0, -0.5, -3.0)]), correction=0)[0, 1]
    torch.testing.assert_close(covariance(advantage, numbers(-1.0, -2.0, -0.5, -3.0)).mean(), spread)


def test_the_entropy_of_a_softmax_falls_by_the_covariance_of_log_probs_and_advantages() -> None:
    """The paper's theorem for one state: a natural step of size h, which adds h * A to the logits, changes the entropy
    by -h * Cov(log pi, A)."""
    logits, advantage = numbers(0.3, -0.2, 0.9, -1.0), numbers(1.0, 0.2, 0.5, -2.0)

    def entropy(values: Tensor) -> Tensor:
        return -(values.softmax(0) * values.log_softmax(0)).sum()

    chance, log_prob = logits.softmax(0), logits.log_softmax(0)
    mean = (chance * advantage).sum()
    expected = -(chance * (log_prob - (chance * log_prob).sum()) * (advantage - mean)).sum()
    step = 1e-6
    slope = (entropy(logits + step * advantage) - entropy(logits - step * advantage)) / (2 * step)
    torch.testing.assert_close(slope, expected, rtol=1e-7, atol=1e-8)


def in_round(number: int, tokens: Any) -> Any:
    return SimpleNamespace(**vars(tokens), round_number=number)


def test_clip_cov_draws_between_its_bounds_as_many_as_it_may_and_the_same_in_a_resumed_run() -> None:
    generator = torch.Generator().manual_seed(1)
    tokens: Any = SimpleNamespace(
        advantage=torch.randn(1000, generator=generator), log_prob=-3 * torch.rand(1000, generator=generator)
    )
    parts = covariance(tokens.advantage, tokens.log_prob)
    objective = ClipCov(share=0.02, covariance_low=0.5, covariance_high=1.0)
    marked = objective.mark(in_round(3, tokens))
    assert marked.sum() == 20 and ((parts[marked] > 0.5) & (parts[marked] < 1.0)).all()
    assert torch.equal(marked, objective.mark(in_round(3, tokens)))
    assert not torch.equal(marked, objective.mark(in_round(4, tokens)))


def test_what_clip_cov_draws_has_no_gradient_and_the_rest_grpos() -> None:
    log_prob, seen = random_round(5)
    seen = replace(seen, marked=torch.arange(TOKENS) % 3 == 0)
    whole = gradient_of(Grpo(kl=0.0, clip_low=1.0, clip_high=1.0), log_prob, seen)
    torch.testing.assert_close(gradient_of(ClipCov(), log_prob, seen), torch.where(seen.marked, 0.0, whole))
