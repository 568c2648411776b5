"""Advantages for k tries: values by enumeration of subsets, exact gradients of pass@k, and the published losses."""

import math
from collections.abc import Callable
from itertools import combinations, product
from typing import Any

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.method.advantage import CompletionAdvantage
from models.method.scored import Scored
from models.parts.advantage.group_relative import GroupRelative
from models.parts.advantage.max_at_k import MaxAtK
from models.parts.advantage.pass_at_k import PassAtK
from models.parts.objective.grpo import Grpo
from models.recipes.load import load_recipe
from models.recipes.smoke import made_small
from tests.support.published_losses import LENGTHS, SIZES, assert_same, clipped_loss, loss_of_parts, random_round
from tests.support.tiny_models import scored
from tests.support.tiny_resources import make_resources

VERDICTS = torch.tensor([1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0], dtype=torch.float64)


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_by_hand() -> None:
    """Two of four are right and k = 2, so one pair of six contains no right one: m = 1/6 and s = sqrt(5)/6."""
    advantages = PassAtK(k=2, epsilon=0.0).of_completions(make_resources(), scored(numbers(1, 1, 0, 0), [4]))
    right, wrong = 1 / 5**0.5, (1 / 6 - 1 / 3) * 6 / 5**0.5
    assert advantages.tolist() == pytest.approx([right, right, wrong, wrong])
    advantages = MaxAtK(k=2).of_completions(make_resources(), scored(numbers(3, 1, 0), [3]))
    assert advantages.tolist() == pytest.approx([2 / 2 * (2 + 3), 2 / 2 * 1, 0.0])  # 3 exceeds 1 and 0, 1 exceeds 0


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_it_is_the_mean_advantage_of_the_subsets_that_hold_a_completion(k: int) -> None:
    """In the paper's bootstrap, each subset has the normalised reward of its best member, and its members share it."""
    verdicts = VERDICTS[4:8].tolist()
    subsets = list(combinations(range(4), k))
    best = numbers(*[max(verdicts[i] for i in subset) for subset in subsets])
    better = (best - best.mean()) / best.std(unbiased=False)
    wanted = [
        float(torch.stack([a for subset, a in zip(subsets, better, strict=True) if i in subset]).mean())
        for i in range(4)
    ]
    advantages = PassAtK(k=k, epsilon=0.0).of_completions(make_resources(), scored(VERDICTS[4:8], [4]))
    if k < 3:  # two are wrong, so three always contain a right one
        assert advantages.tolist() == pytest.approx(wanted, abs=1e-12)
    else:
        assert advantages.tolist() == [0.0] * 4


def test_of_one_try_it_is_the_group_relative_advantage_of_the_verdict() -> None:
    held = scored(VERDICTS, SIZES)
    torch.testing.assert_close(
        PassAtK(k=1, epsilon=1e-6).of_completions(make_resources(), held),
        GroupRelative(epsilon=1e-6).of_completions(make_resources(), held),
    )
    assert MaxAtK(k=1).of_completions(make_resources(), held).tolist() == VERDICTS.tolist()


def test_loss_and_gradient_are_the_published_ones() -> None:
    """The expected loss reimplements the authors' code, `calc_adv`."""
    held, log_prob, old = random_round(VERDICTS)
    advantage = []
    for at in range(0, len(LENGTHS), SIZES[0]):
        verdicts, n = VERDICTS[at : at + SIZES[0]].tolist(), SIZES[0]
        c = int(sum(verdicts))
        rho = 1 - math.comb(n - c, 2) / math.comb(n, 2)
        sigma = math.sqrt(rho * (1 - rho))
        positive = (1 - rho) / (sigma + 1e-6)
        negative = (1 - rho - math.comb(n - c - 1, 1) / math.comb(n - 1, 1)) / (sigma + 1e-6)
        advantage += [positive if verdict else negative for verdict in verdicts]
    wanted = clipped_loss(numbers(*advantage)[:, None], log_prob, old)
    assert_same(loss_of_parts(PassAtK(k=2), Grpo(kl=0.0), held, log_prob, old, "token"), wanted)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_what_is_added_to_the_best_is_the_mean_over_all_subsets(k: int) -> None:
    """The expected value is PKPO's estimate with the baseline of k - 1 tries, by enumeration of the subsets."""
    rewards = torch.randn(7, dtype=torch.float64, generator=torch.Generator().manual_seed(k))
    rewards[3] = rewards[5]
    wanted = torch.zeros(7, dtype=torch.float64)
    for subset in combinations(range(7), k):
        for i in subset:
            others = [float(rewards[j]) for j in subset if j != i]
            wanted[i] += float(rewards[subset,].max()) - (max(others) if others else 0.0)
    advantages = MaxAtK(k=k).of_completions(make_resources(), scored(rewards, [7]))
    torch.testing.assert_close(advantages, 7 * wanted / math.comb(7, k), rtol=0, atol=1e-12)


LOGITS = numbers(0.3, -0.2, 0.9)
WORTH = numbers(1.0, 0.0, -2.0)
RIGHT = numbers(1.0, 0.0, 0.0)


def expected_gradient(advantage: CompletionAdvantage, worth: Tensor, group: int = 4) -> Tensor:
    """Return the exact mean over all groups of the policy gradient that is estimated from one group."""
    logits = LOGITS.clone().requires_grad_()
    log_prob, total = logits.log_softmax(0), torch.zeros((), dtype=torch.float64)
    for actions in product(range(3), repeat=group):
        drawn = log_prob[list(actions)]
        better = advantage.of_completions(make_resources(), scored(worth[list(actions)], [group]))
        total = total + drawn.detach().sum().exp() * (better * drawn).mean()
    return torch.autograd.grad(total, logits)[0]


def exact_gradient(of_chances: Callable[[Tensor], Tensor]) -> Tensor:
    logits = LOGITS.clone().requires_grad_()
    return torch.autograd.grad(of_chances(logits.softmax(0)), logits)[0]


@pytest.mark.parametrize("k", [2, 3, 4])
def test_pkpo_is_the_exact_gradient_of_the_best_of_k(k: int) -> None:
    def best(chances: Tensor) -> Tensor:
        tries = product(range(3), repeat=k)
        worth = (chances[list(entry)].prod() * WORTH[list(entry)].max() for entry in tries)
        return sum(worth, torch.zeros((), dtype=torch.float64))

    torch.testing.assert_close(expected_gradient(MaxAtK(k=k), WORTH), exact_gradient(best))
    passed = exact_gradient(lambda chances: 1 - (1 - chances[0]) ** k)
    torch.testing.assert_close(expected_gradient(MaxAtK(k=k), RIGHT), passed)


def test_maxrl_is_the_exact_gradient_of_the_likelihood_cut_off_below_the_samples() -> None:
    """The objective is the sum of pass@k / k for k < G. Up to a constant, it tends to log p as G grows."""
    advantage = GroupRelative(scale="mean", epsilon=0.0)

    def series(chances: Tensor) -> Tensor:
        terms = ((1 - (1 - chances[0]) ** k) / k for k in range(1, 4))
        return sum(terms, torch.zeros((), dtype=torch.float64))

    class Guarded(GroupRelative):
        def of_completions(self, resources: Any, held: Scored) -> Tensor:
            return torch.nan_to_num(advantage.of_completions(resources, held))

    torch.testing.assert_close(expected_gradient(Guarded(), RIGHT), exact_gradient(series))


def test_a_prompt_that_k_tries_solve_for_certain_weighs_nothing() -> None:
    held = scored(numbers(1, 1, 1, 0), [4])
    assert PassAtK(k=2).of_completions(make_resources(), held).tolist() == [0.0] * 4
    assert PassAtK(k=1).of_completions(make_resources(), held)[3] < -1.7


def test_the_verdict_alone_tells_right_from_wrong() -> None:
    held = scored(numbers(0.2, 1.1, 0.0, 0.3), [4], {"exact_answer": numbers(0, 1, 0, 0)})
    advantages = PassAtK(k=2, by="exact_answer").of_completions(make_resources(), held)
    assert advantages[1] > 0 > advantages[0] and advantages[0] == advantages[2] == advantages[3]
    with pytest.raises(UserError, match=r"advantage\.by: no reward is called judge"):
        MaxAtK(by="judge").of_completions(make_resources(), held)


@pytest.mark.parametrize("advantage", [PassAtK(k=4), MaxAtK(k=4)])
def test_a_group_of_fewer_than_k_is_refused(advantage: CompletionAdvantage) -> None:
    with pytest.raises(UserError, match=r"advantage\.k is 4, but problem p0 has 3 completions"):
        advantage.of_completions(make_resources(), scored(numbers(1, 0, 0), [3]))
    with pytest.raises(UserError, match=r"rollouts\.group_size is 4, but advantage pass_at_k needs 5 or more"):
        load_recipe("pass_at_k", ["rollouts.group_size=4"])


def test_a_smoke_run_draws_groups_of_which_most_give_a_signal() -> None:
    for k, group in ((2, 4), (3, 6), (6, 8)):  # twice k, but at most the recipe's group size
        small = load_recipe("pass_at_k", [*made_small("pass_at_k", [f"advantage.k={k}"])])
        assert small.rollouts.group_size == group


def trained_on_a_riddle(advantage: CompletionAdvantage, group: int = 8, steps: int = 600, rate: float = 0.4) -> float:
    """Return the probability of the first of two answers after ascent on exact expected gradients over all groups.

    All prompts look alike. The first answer is right for 6 of 10 of them, the second for the others.
    """
    gains = {}
    for first in range(group + 1):  # number of first answers in a group, whose order does not matter
        is_first = torch.arange(group) < first
        for share, right in ((0.6, is_first), (0.4, ~is_first)):
            better = advantage.of_completions(make_resources(), scored(right.double(), [group]))
            of_first, of_second = float(better[is_first].sum()), float(better[~is_first].sum())
            gains[first, share] = share * of_first / group, share * of_second / group
    logit = 0.0
    for _ in range(steps):
        chance = 1 / (1 + math.exp(-logit))
        slope = sum(
            math.comb(group, first)
            * chance**first
            * (1 - chance) ** (group - first)
            * (of_first * (1 - chance) - of_second * chance)
            for (first, _), (of_first, of_second) in gains.items()
        )
        logit += rate * slope
    return 1 / (1 + math.exp(-logit))


def passes(chance: float, k: int) -> float:
    return 0.6 * (1 - (1 - chance) ** k) + 0.4 * (1 - chance**k)


def test_where_prompts_look_alike_grpo_keeps_one_answer_and_trained_for_k_tries_a_policy_keeps_both() -> None:
    """pass@4 is largest if ((1 - p) / p)^3 = 2/3, the likelihood if p = 0.6, and pass@1 if p = 1."""
    alone = trained_on_a_riddle(GroupRelative(epsilon=1e-6))
    best_of_four = trained_on_a_riddle(MaxAtK(k=4))
    normalised = trained_on_a_riddle(PassAtK(k=4))
    likely = trained_on_a_riddle(GroupRelative(scale="mean", epsilon=1e-6))
    assert alone > 0.97 and passes(alone, 8) < 0.7
    assert best_of_four == pytest.approx(1 / (1 + (2 / 3) ** (1 / 3)), abs=1e-4)
    assert 0.5 < normalised < 0.6 and 0.55 < likely < 0.65
    for kept in (best_of_four, normalised, likely):
        assert passes(kept, 8) > 0.99
