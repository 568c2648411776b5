"""Balanced advantages: right and wrong completions are normalised separately, as in the published code."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.learner.reduce import token_weights
from models.method.advantage import CompletionAdvantage
from models.method.problem import Problem
from models.method.rollout import Rollout
from models.method.scored import Scored
from models.parts.advantage.balanced import Balanced
from models.parts.objective.weighted_likelihood import WeightedLikelihood
from models.parts.select.best_of_n import BestOfN
from models.recipes.load import load_recipe
from models.training.score import score
from tests.support.tiny_batches import make_batch
from tests.support.tiny_models import scored
from tests.support.tiny_resources import make_resources

RIGHT = torch.tensor([1.0, 0.0, 0.0, 1.0], dtype=torch.float64)
LOGITS = torch.tensor([0.3, -0.2, 0.9, 0.0], dtype=torch.float64)


def of_lengths(verdicts: Sequence[int], sizes: Sequence[int], lengths: Sequence[int]) -> Scored:
    held = scored(torch.tensor(verdicts, dtype=torch.float64), sizes)
    rollouts = [replace(rollout, completion=(1,) * n) for rollout, n in zip(held.rollouts, lengths, strict=True)]
    return replace(held, rollouts=rollouts)


def test_by_hand() -> None:
    """Right and wrong completions have 8 of 16 tokens each, so the advantage is twice the leave-one-out advantage."""
    held = of_lengths([1, 0, 0, 1], [2, 2], [3, 2, 6, 5])
    assert Balanced(negatives=1.0).of_completions(make_resources(), held).tolist() == [2.0, -2.0, -2.0, 2.0]
    held = of_lengths([1, 0, 0, 0, 1], [4, 1], [4, 1, 2, 5, 8])  # the last is alone in its group, but its tokens count
    advantages = Balanced().of_completions(make_resources(), held)
    wanted = [20 / 12, *[-0.5 * 20 / 8 / 3] * 3, 0.0]
    assert advantages.tolist() == pytest.approx(wanted)


def test_the_reduced_loss_is_the_published_one() -> None:
    """The published code, reimplemented in float64, divides the sums over right and wrong each by their own tokens."""
    lengths, verdicts, sizes = [3, 1, 4, 2, 2, 6, 1, 3], [1, 0, 0, 0, 1, 1, 0, 1], [4, 4]
    held = of_lengths(verdicts, sizes, lengths)
    noise = torch.Generator().manual_seed(0)
    log_prob = -torch.rand(sum(lengths), dtype=torch.float64, generator=noise)
    rows = torch.repeat_interleave(torch.arange(8), torch.tensor(lengths))
    seen = make_batch(Balanced().of_completions(make_resources(), held)[rows], log_prob, log_prob, None, rows)
    loss, _ = WeightedLikelihood()(log_prob, seen)
    advantages = (torch.cat(token_weights(lengths, "token", 8)) * loss).sum()
    summed = torch.stack([row.sum() for row in log_prob.split(lengths)])
    wanted = 0.0
    for kind, factor in ((1, 1.0), (0, 0.5)):
        tokens = sum(n for n, verdict in zip(lengths, verdicts, strict=True) if verdict == kind)
        for i, verdict in enumerate(verdicts):
            if verdict == kind:
                others = [v for j, v in enumerate(verdicts) if j // 4 == i // 4 and j != i]
                wanted -= factor * (verdict - sum(others) / 3) * float(summed[i]) / tokens
    assert float(advantages) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("share", [1, 3, 7])
def test_the_right_pull_twice_as_hard_a_token_as_the_wrong_push_however_rare_they_are(share: int) -> None:
    """Divided by the leave-one-out advantage, the weights sum to 1 over right and to 1/2 over wrong tokens."""
    held = of_lengths([1] * share + [0] * (8 - share), [8], [2] * 8)
    advantage = Balanced().of_completions(make_resources(), held)
    plain = Balanced(negatives=1.0).of_completions(make_resources(), held)
    a = torch.where(torch.arange(8) < share, (8 - share) / 7, -share / 7).double()
    weight = advantage / a / 8
    assert float(weight[:share].sum()) == pytest.approx(1.0) and float(weight[share:].sum()) == pytest.approx(0.5)
    torch.testing.assert_close(plain[share:], 2 * advantage[share:])


@pytest.mark.parametrize("verdict", [0.0, 1.0])
def test_where_all_is_right_or_all_wrong_nothing_is_pushed_and_nothing_is_infinite(verdict: float) -> None:
    assert Balanced().of_completions(make_resources(), scored(torch.full((4,), verdict), [3, 1])).tolist() == [0.0] * 4


def expected_gradient(select: BestOfN) -> Tensor:
    """Return the mean gradient of the loss over all groups of three that contain a right action."""
    logits = LOGITS.clone().requires_grad_()
    log_prob = logits.log_softmax(0)
    total, chance = torch.zeros((), dtype=torch.float64), 0.0
    for actions in product(range(4), repeat=3):
        drawn = torch.tensor(actions)
        if RIGHT[drawn].max() == 0.0:
            continue
        kept = select(scored(RIGHT[drawn], [3]))
        nothing = torch.zeros(len(kept), dtype=torch.float64)
        seen = make_batch(nothing + 1.0, nothing, nothing)
        loss, _ = WeightedLikelihood()(log_prob[drawn[kept]], seen)
        weight = float(log_prob[drawn].detach().sum().exp())
        total, chance = total + weight * loss.sum(), chance + weight
    (gradient,) = torch.autograd.grad(total / chance, logits)
    return gradient


def exact_gradient(of_chance: Callable[..., Any]) -> Tensor:
    logits = LOGITS.clone().requires_grad_()
    return torch.autograd.grad(of_chance((logits.softmax(0) * RIGHT).sum()), logits)[0]


def test_cloning_the_best_of_n_climbs_the_log_of_the_chance_to_be_right() -> None:
    torch.testing.assert_close(-expected_gradient(BestOfN()), exact_gradient(torch.log))


def through(recipe: str, texts: Sequence[str], liked: Sequence[float]) -> tuple[list[int], list[float]]:
    """Return the indices of the completions that a recipe selects for a prompt with answer 7, and their advantages.

    Args:
        recipe: name of the recipe.
        texts: the completions.
        liked: scores of the reward model, if the recipe has one, [completions].
    """
    slots = load_recipe(recipe)
    rollouts = [
        Rollout(Problem("p", "", "7"), 0, (place, 1), torch.zeros(2), text, True) for place, text in enumerate(texts)
    ]
    here = make_resources(scorer=lambda sequences: torch.tensor(liked))
    chosen = score(here, slots.rewards, rollouts)
    for select in slots.select:
        chosen = chosen.take(select(chosen))
    assert isinstance(slots.advantage, CompletionAdvantage)
    return [rollout.completion[0] for rollout in chosen.rollouts], slots.advantage.of_completions(here, chosen).tolist()


TEXTS = ["#### 3", "#### 7", "#### 7", "#### 4", "#### 7", "#### 5", "#### 6", "#### 2"]
LIKED = [9.0, -9.0, 9.0, 0.0, -1.0, 9.0, -9.0, 3.0]  # the reward model likes wrong answers and only one right answer


def test_oreal_clones_every_right_answer_and_pushes_away_every_wrong_one_whatever_a_model_likes() -> None:
    kept, advantage = through("oreal", TEXTS, LIKED)
    assert kept == list(range(8))  # 3 of 8 are right, of 2 tokens each: 6 right tokens, 10 wrong ones
    right, wrong = 16 / 6 * 5 / 7, -0.5 * 16 / 10 * 3 / 7
    assert advantage == pytest.approx([right if place in (1, 2, 4) else wrong for place in range(8)])


def test_raft_clones_one_right_answer_the_first() -> None:
    assert through("raft", TEXTS, LIKED) == ([1], [1.0])


def test_beside_another_reward_the_verdict_alone_tells_right_from_wrong() -> None:
    verdict = torch.tensor([1.0, 1.0, 0.0, 0.0])
    liked = torch.tensor([0.0, 1.0, 1.0, 0.0])
    held = scored(verdict + 0.6 * liked, [4], {"exact_answer": verdict})
    advantages = Balanced(by="exact_answer", negatives=1.0).of_completions(make_resources(), held)
    torch.testing.assert_close(advantages, torch.tensor([4.0, 4.0, -4.0, -4.0]) / 3)
    with pytest.raises(UserError, match=r"advantage\.by: no reward is called judge; there are exact_answer"):
        Balanced(by="judge").of_completions(make_resources(), held)
