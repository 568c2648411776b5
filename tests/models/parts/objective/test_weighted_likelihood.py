"""Weighted likelihood: its loss and gradient, and the completions that the recipes RAFT and OREAL train on."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from models.method.advantage import CompletionAdvantage
from models.method.token_batch import TokenBatch
from models.parts.advantage.balanced import Balanced
from models.parts.advantage.reward import NoAdvantage
from models.parts.objective.grpo import Grpo
from models.parts.objective.weighted_likelihood import WeightedLikelihood
from models.parts.select.best_of_n import BestOfN
from models.recipes.load import load_recipe
from tests.support.tiny_batches import make_batch
from tests.support.tiny_models import scored
from tests.support.tiny_resources import make_resources

LOG_PROB = torch.tensor([-1.0, -2.0, -0.3], dtype=torch.float64)


def batch(advantage: Tensor, reference: Tensor | None = None) -> TokenBatch:
    return make_batch(
        advantage=advantage,
        behaviour=torch.zeros_like(advantage),
        old=LOG_PROB[: len(advantage)],
        reference=reference,
        completion=torch.zeros(len(advantage), dtype=torch.long),
    )


def test_with_weights_of_one_it_is_the_negative_log_likelihood() -> None:
    loss, _ = WeightedLikelihood()(LOG_PROB, batch(torch.ones(3, dtype=torch.float64)))
    torch.testing.assert_close(loss, -LOG_PROB)


def test_its_gradient_is_reinforce_of_the_same_advantage_wherever_the_policy_is() -> None:
    log_prob = LOG_PROB.clone().requires_grad_()
    advantage = torch.tensor([1.0, -0.5, 2.0], dtype=torch.float64)
    loss, _ = WeightedLikelihood()(log_prob, batch(advantage))
    torch.testing.assert_close(torch.autograd.grad(loss.sum(), log_prob)[0], -advantage)


def test_the_kl_term_is_that_of_the_clipped_policy_gradient() -> None:
    reference = LOG_PROB + torch.tensor([0.4, -0.2, 0.1], dtype=torch.float64)
    seen = batch(torch.zeros(3, dtype=torch.float64), reference)
    torch.testing.assert_close(WeightedLikelihood(kl=0.3)(LOG_PROB, seen)[0], Grpo(kl=0.3)(LOG_PROB, seen)[0])


def losses(
    select: BestOfN,
    advantage: CompletionAdvantage,
    objective: WeightedLikelihood,
    rewards: Tensor,
    sizes: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """Return the places of the chosen completions and their losses, one token each."""
    whole = scored(rewards, sizes)
    kept = select(whole)
    log_prob = -torch.arange(1.0, 1.0 + len(rewards), dtype=torch.float64)[kept]
    chosen = advantage.of_completions(make_resources(), whole.take(kept))
    seen = make_batch(
        advantage=chosen,
        behaviour=log_prob,
        old=log_prob,
        reference=log_prob - 1.0,
    )
    return kept, objective(log_prob, seen)[0]


EXACT = torch.tensor([0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0], dtype=torch.float64)
"""Whether each of 12 completions is right: some, none, some and all of the three of a prompt."""
SCORES = torch.tensor([2.1, -0.3, 1.4, 0.2, 0.9, 0.1, -1.2, 1.8, 0.6, 0.3, -0.4, 1.1], dtype=torch.float64)
"""Scores of a reward model for them; some disagree with what is right."""
PROMPTS = [3, 3, 3, 3]


def trained_on_by(name: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return the places of a recipe's training completions, in order, their advantages and losses without KL."""
    recipe = load_recipe(name)
    metrics = {reward.label: EXACT if reward.name == "exact_answer" else SCORES.sigmoid() for reward in recipe.rewards}
    total = sum((reward.weight * metrics[reward.label] for reward in recipe.rewards), torch.zeros(len(EXACT)))
    places = torch.arange(len(EXACT), dtype=torch.float64)  # a component that only identifies completions
    chosen = scored(total, PROMPTS, {**metrics, "place": places})
    for select in recipe.select:
        chosen = chosen.take(select(chosen))
    kept, order = chosen.components["place"].long().sort()
    assert isinstance(recipe.advantage, CompletionAdvantage)
    advantage = recipe.advantage.of_completions(make_resources(), chosen)[order]
    log_prob = -1.0 - kept.double() / 10
    objective: Any = recipe.objective
    loss, _ = replace(objective, kl=0.0)(log_prob, make_batch(advantage, log_prob, log_prob, None, kept))
    return kept, advantage, loss


def test_raft_clones_one_right_answer_of_each_prompt_that_has_any() -> None:
    """The test applies the recipe's selectors and advantage too, not only its objective."""
    cloned, ones, loss = trained_on_by("raft")
    assert (cloned // 3).tolist() == [0, 2, 3] and EXACT[cloned].min() == 1  # prompt 1 has no right answer
    torch.testing.assert_close(ones, torch.ones_like(ones))
    torch.testing.assert_close(loss, 1.0 + cloned.double() / 10)


def test_oreal_clones_what_is_right_and_pushes_away_what_is_wrong_where_a_prompt_has_both() -> None:
    kept, advantage, _ = trained_on_by("oreal")
    assert kept.tolist() == list(range(12))
    mixed = (kept // 3 == 0) | (kept // 3 == 2)  # the other prompts are all wrong or all right
    assert torch.equal(advantage != 0, mixed)
    assert torch.equal((advantage > 0)[mixed], (EXACT > 0)[mixed])


def test_negatives_of_zero_silence_what_is_wrong_even_where_it_is_chosen() -> None:
    rewards = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    _, cloned = losses(BestOfN(worst=0), NoAdvantage(), WeightedLikelihood(), rewards, [3])
    _, silent = losses(BestOfN(worst=2), Balanced(negatives=0.0), WeightedLikelihood(), rewards, [3])
    silenced = torch.cat([3.0 * cloned, torch.zeros(2, dtype=torch.float64)])  # weight 3: one of three tokens is right
    torch.testing.assert_close(silent, silenced)
