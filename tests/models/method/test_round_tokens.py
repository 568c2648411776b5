"""Marking of tokens among all of a round: independent of rows and minibatches, and only among trained tokens."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from models.method.objective import RoundTokens, highest
from models.method.readings import Readings
from models.method.rollout import Rollout
from models.method.scored import Scored
from models.parts.objective.entropy_covariance import ClipCov, KlCov
from models.parts.objective.top_entropy import TopEntropy
from models.parts.shared.importance import ImportanceSettings
from tests.support.device_here import DEVICE
from tests.support.fit_rounds import ADVANTAGE, learner_of, round_of, step
from tests.support.tiny_models import SEQUENCES, each_token, plain_log_probs, tiny_policy

MARKING = [
    TopEntropy(share=0.3),
    ClipCov(share=0.2, covariance_low=0.0, covariance_high=100.0),
    KlCov(share=0.3, pull=0.5),
]


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("objective", MARKING, ids=lambda objective: objective.name)
@pytest.mark.parametrize("minibatches", [1, 2])
def test_what_is_marked_does_not_depend_on_how_the_round_is_cut_into_rows(
    objective: ImportanceSettings, minibatches: int
) -> None:
    whole, metrics = step(objective=objective, token_budget=10**6, minibatches=minibatches)
    cut, metrics_of_cut = step(objective=objective, token_budget=20, minibatches=minibatches)
    assert 0 < metrics["marked_share"] < 1
    torch.testing.assert_close(cut, whole, rtol=1e-10, atol=1e-10)
    assert metrics_of_cut == pytest.approx(metrics, abs=1e-10)


def test_as_many_are_marked_in_two_steps_as_in_one() -> None:
    """The quantile is that of the whole round. Separate quantiles for each step would mark other tokens."""
    shares = [step(objective=MARKING[0], minibatches=count, epochs=2)[1]["marked_share"] for count in (1, 2)]
    assert shares[0] == pytest.approx(shares[1])


def tokens_of(chosen: Scored) -> RoundTokens:
    learner = learner_of()
    return RoundTokens(chosen, each_token(ADVANTAGE, chosen), Readings(learner, 100), 0)


def test_entropies_and_log_probs_are_those_of_the_policy_computed_plainly() -> None:
    seen, policy = tokens_of(round_of()), tiny_policy()
    expected = []
    for prompt, completion in zip(SEQUENCES.prompts, SEQUENCES.completions, strict=True):
        ids = torch.tensor([[*prompt, *completion]], device=DEVICE)
        whole = policy(ids).logits[0].log_softmax(-1)[len(prompt) - 1 : -1]
        expected.append(-(whole.exp() * whole).sum(-1))
    torch.testing.assert_close(seen.entropy, torch.cat(expected).detach().cpu(), rtol=1e-10, atol=1e-10)
    rows = torch.cat(plain_log_probs(policy, SEQUENCES)).detach().cpu()
    torch.testing.assert_close(seen.log_prob, rows, rtol=1e-10, atol=1e-10)


def test_tokens_that_are_not_trained_on_are_no_part_of_a_quantile_and_never_marked() -> None:
    chosen = round_of()
    first = chosen.rollouts[0]
    flags = (False,) + (True,) * (len(first.completion) - 1)
    chosen = replace(chosen, rollouts=[replace(first, trained=flags), *chosen.rollouts[1:]])
    seen = tokens_of(chosen)
    total = sum(len(rollout.completion) for rollout in chosen.rollouts)
    assert len(seen.advantage) == len(seen.entropy) == total - 1
    rows = seen.by_completion(torch.ones(total - 1, dtype=torch.bool))
    assert [len(row) for row in rows] == chosen.lengths.tolist() and rows[0].tolist() == list(flags)
    _, metrics = step(chosen, objective=MARKING[0])
    assert metrics["marked_share"] == pytest.approx(int(0.3 * (total - 1)) / (total - 1))


def test_nothing_is_read_that_nobody_asks_for() -> None:
    class Refusing(Readings):
        def policy(self, rollouts: Sequence[Rollout]) -> list[Tensor]:
            raise AssertionError

        def entropy(self, rollouts: Sequence[Rollout]) -> list[Tensor]:
            raise AssertionError

    chosen = round_of()
    seen = RoundTokens(chosen, each_token(ADVANTAGE, chosen), Refusing(learner_of(), 100), 0)
    assert len(seen.advantage) == int(chosen.lengths.sum())


@pytest.mark.parametrize(("share", "marked"), [(0.5, [0, 1, 1, 0]), (0.01, [0, 0, 1, 0]), (1.0, [1, 1, 1, 1])])
def test_the_highest_are_a_share_of_all_and_one_at_least(share: float, marked: list[int]) -> None:
    assert highest(torch.tensor([0.1, 2.0, 3.0, 1.0]), share).tolist() == [bool(flag) for flag in marked]
